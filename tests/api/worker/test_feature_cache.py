"""A job reuses the features of earlier jobs of its owner, and of nobody else."""

import os
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from torch import Tensor

from api.jobs.files import delete_job_files
from api.jobs.store import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.worker.job_child import cached_loader
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from api.worker.retention import shrink
from difficulty_service.backbones.backbone import Backbone, BackboneOptions

LOAD = cached_loader()

Encoded = Callable[..., int]


@pytest.fixture
def encoded(sqlite_engine: Engine, settings: Settings, artifacts: Artifacts) -> Encoded:
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

        changed = settings.model_copy(update=changes)
        result = run_job(job, changed, sqlite_engine, artifacts, Observer(), load)
        assert result.num_reused == result.num_scored - count // job.wanted.num_views
        shutil.rmtree(changed.work_dir)
        return count

    return run


def cached_files(settings: Settings) -> list[Path]:
    return sorted(settings.feature_cache_dir.glob("*/*.arrow"))


@pytest.mark.slow
def test_the_images_of_an_earlier_job_are_not_encoded_again(
    claimed: Callable[..., Job], encoded: Encoded, photos: Path
) -> None:
    first = encoded(claimed())
    (photos / "bird" / "03.png").rename(photos / "cat" / "03-moved.png")
    (photos / "bird" / "04.png").write_bytes((photos / "bird" / "05.png").read_bytes() + b" ")

    assert first == 40
    assert encoded(claimed()) == 1
    assert encoded(claimed()) == 0


def test_nothing_of_another_owner_is_used(claimed: Callable[..., Job], encoded: Encoded) -> None:
    encoded(claimed())

    assert encoded(replace(claimed(), owner="somebody else")) == 40


@pytest.mark.slow
def test_features_with_other_settings_are_not_used(
    claimed: Callable[..., Job], encoded: Encoded
) -> None:
    encoded(claimed())

    assert encoded(claimed(augment_runs=2)) == 80
    assert encoded(claimed(flip=True)) == 40


def test_a_size_of_zero_keeps_nothing(
    claimed: Callable[..., Job], encoded: Encoded, settings: Settings
) -> None:
    encoded(claimed(), feature_cache_mb=0)

    assert cached_files(settings) == []
    assert encoded(claimed()) == 40


def test_a_damaged_file_is_deleted_and_its_images_are_encoded_again(
    claimed: Callable[..., Job], encoded: Encoded, settings: Settings
) -> None:
    encoded(claimed())
    damaged = cached_files(settings)[0]
    damaged.write_bytes(damaged.read_bytes()[:100])

    assert encoded(claimed()) == 40
    assert not damaged.exists()


def test_the_features_of_a_job_are_deleted_with_it(
    claimed: Callable[..., Job], encoded: Encoded, settings: Settings, artifacts: Artifacts
) -> None:
    job, other = claimed(), claimed(seed=1, augment_runs=1)
    encoded(job)
    encoded(other)

    delete_job_files(settings, artifacts, job.id)

    assert {file.name.partition("-")[0] for file in cached_files(settings)} == {other.id}


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
