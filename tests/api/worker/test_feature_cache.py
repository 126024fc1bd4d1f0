"""A job reuses the features of earlier jobs of its owner, and of nobody else."""

import os
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from api.jobs.files import delete_job_files
from api.jobs.store import Job
from api.settings import Settings
from api.worker.retention import shrink
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from tests.api.worker.bench import LOAD, Bench

Encoded = Callable[..., int]


@pytest.fixture
def encoded(bench: Bench) -> Encoded:
    """Runs a job and counts the images that its backbone sees."""

    def run(job: Job, **changes: Any) -> int:  # noqa: ANN401 - fields of the settings
        count = 0

        def load(name: str, options: BackboneOptions) -> Backbone:
            loaded = LOAD(name, options)
            counting = copy(loaded)

            def encode(images: Tensor) -> Tensor:
                nonlocal count
                count += len(images)
                return loaded.encode(images)

            object.__setattr__(counting, "encode", encode)
            return counting

        result = bench.with_settings(**changes).run(job, load=load)
        assert result.num_reused == result.num_scored - count // job.wanted.num_views
        shutil.rmtree(bench.settings.work_dir)
        return count

    return run


def cached_files(settings: Settings) -> list[Path]:
    return sorted(settings.feature_cache_dir.glob("*/*.arrow"))


@pytest.mark.slow
def test_the_images_of_an_earlier_job_are_not_encoded_again(bench: Bench, encoded: Encoded) -> None:
    first = encoded(bench.claim())
    (bench.photos / "bird" / "03.png").rename(bench.photos / "cat" / "03-moved.png")
    (bench.photos / "bird" / "04.png").write_bytes(
        (bench.photos / "bird" / "05.png").read_bytes() + b" "
    )

    assert first == 40
    assert encoded(bench.claim()) == 1
    assert encoded(bench.claim()) == 0


def test_nothing_of_another_owner_is_used(bench: Bench, encoded: Encoded) -> None:
    encoded(bench.claim())

    assert encoded(replace(bench.claim(), owner="somebody else")) == 40


@pytest.mark.slow
def test_features_with_other_settings_are_not_used(bench: Bench, encoded: Encoded) -> None:
    encoded(bench.claim())

    assert encoded(bench.claim(augment_runs=2)) == 80
    assert encoded(bench.claim(flip=True)) == 40


def test_a_size_of_zero_keeps_nothing(bench: Bench, encoded: Encoded) -> None:
    encoded(bench.claim(), feature_cache_mb=0)

    assert cached_files(bench.settings) == []
    assert encoded(bench.claim()) == 40


def test_a_damaged_file_is_deleted_and_its_images_are_encoded_again(
    bench: Bench, encoded: Encoded
) -> None:
    encoded(bench.claim())
    damaged = cached_files(bench.settings)[0]
    damaged.write_bytes(damaged.read_bytes()[:100])

    assert encoded(bench.claim()) == 40
    assert not damaged.exists()


def test_the_features_of_a_job_are_deleted_with_it(bench: Bench, encoded: Encoded) -> None:
    job, other = bench.claim(), bench.claim(seed=1, augment_runs=1)
    encoded(job)
    encoded(other)

    delete_job_files(bench.settings, bench.artifacts, job.id)

    assert {file.name.partition("-")[0] for file in cached_files(bench.settings)} == {other.id}


def test_what_was_not_used_for_longest_is_deleted_first(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    for number in range(4):
        file = tmp_path / "key" / f"{number}.arrow"
        file.write_bytes(bytes(10))
        os.utime(file, (100 - number, 100 - number))

    assert shrink(tmp_path, 25) == 2
    assert sorted(file.name for file in (tmp_path / "key").iterdir()) == ["0.arrow", "1.arrow"]
    assert shrink(tmp_path, 25, unused_since=100) == 1
    assert shrink(tmp_path, 25) == 0
