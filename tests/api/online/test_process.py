"""Samples are scored in another process, whose death does not affect the service."""

import io
import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from multiprocessing import active_children
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from api.http.problems import Problem
from api.jobs.files import GAUSSIANS_FILE
from api.jobs.rows import Job
from api.online.encoder import BackbonePool
from api.online.process import ScoringProcess
from api.settings import Settings
from difficulty_service.pipeline import ExtractedDataset


@pytest.fixture(scope="module")
def images(photos: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(photos.rglob("*.png"))]


@pytest.fixture(scope="module")
def description(extracted: ExtractedDataset) -> dict[str, Any]:
    return dict(extracted.store.description)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(data_dir=tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def scoring(settings: Settings) -> Iterator[ScoringProcess]:
    with closing(ScoringProcess(settings)) as scoring:
        yield scoring


def job_with_files_at(prefix: str) -> Job:
    known = {"id": "job", "state": "succeeded", "result": {"prefix": prefix}}
    return Job(**dict.fromkeys(each.name for each in fields(Job)) | known)  # type: ignore[arg-type]


def test_features_from_the_other_process_are_those_of_this_one(
    scoring: ScoringProcess, images: list[bytes], description: dict[str, Any]
) -> None:
    with closing(BackbonePool(torch.device("cpu"), max_pixels=1_000_000)) as networks:
        openers = [lambda image=image: io.BytesIO(image) for image in images]
        expected = [
            row for row in networks.encode(openers, description) if isinstance(row, torch.Tensor)
        ]

    found = scoring.encode(images, description)

    for row, here in zip(found, expected, strict=True):
        assert isinstance(here, torch.Tensor)
        np.testing.assert_allclose(row, here.numpy(), rtol=1e-4, atol=1e-5)


def test_an_image_that_takes_too_long_to_decode_ends_only_that_process(
    settings: Settings, images: list[bytes], description: dict[str, Any]
) -> None:
    slow = b"P3 1990 2000 255\n" + b"1 " * (3 * 1990 * 2000)
    impatient = settings.model_copy(update={"image_seconds": 2.0})

    with closing(ScoringProcess(impatient)) as scoring:
        with pytest.raises(Problem, match="ended meanwhile") as caught:
            scoring.encode([slow], description)
        found = scoring.encode(images[:1], description)

    assert caught.value.status == 503
    assert isinstance(found[0], np.ndarray)


def test_an_unreadable_image_has_its_reason_in_its_place(
    scoring: ScoringProcess, images: list[bytes], description: dict[str, Any]
) -> None:
    found = scoring.encode([images[0], b"no image", images[1]], description)

    assert [isinstance(each, str) for each in found] == [False, True, False]


def test_a_problem_in_the_other_process_is_the_same_problem_here(
    scoring: ScoringProcess, images: list[bytes], description: dict[str, Any]
) -> None:
    with pytest.raises(Problem) as caught:
        scoring.encode(images[:1], description | {"weights_sha256": "0" * 64})

    assert (caught.value.status, caught.value.type) == (409, "conflict")


def test_an_error_of_the_work_is_not_taken_for_the_death_of_the_process(
    scoring: ScoringProcess, settings: Settings, images: list[bytes], description: dict[str, Any]
) -> None:
    scoring.encode(images[:1], description)
    (process,) = (child for child in active_children() if isinstance(child, SpawnProcess))
    Path(settings.artifact_root, "jobs", "folder", GAUSSIANS_FILE).mkdir(parents=True)

    with pytest.raises(RuntimeError, match="KeyError: 'backbone'"):
        scoring.encode(images[:1], {})
    with pytest.raises(Problem, match="gone"):
        scoring.describe(job_with_files_at("jobs/none"))
    with pytest.raises(OSError, match=GAUSSIANS_FILE):
        scoring.describe(job_with_files_at("jobs/folder"))

    assert process.is_alive()
    assert len(scoring.encode(images[:1], description)) == 1


def test_a_problem_crosses_processes_whole() -> None:
    problem = Problem(429, "too-many-requests", "d", "r", field="f", headers={"Retry-After": "1"})

    copy = pickle.loads(pickle.dumps(problem))  # noqa: S301 - made on this line

    assert vars(copy) == vars(problem)


def test_after_the_process_died_one_request_fails_and_the_next_finds_a_new_one(
    scoring: ScoringProcess, images: list[bytes], description: dict[str, Any]
) -> None:
    scoring.encode(images, description)
    (process,) = (child for child in active_children() if isinstance(child, SpawnProcess))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)

    with pytest.raises(Problem) as caught:
        scoring.encode(images, description)

    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    assert len(scoring.encode(images, description)) == len(images)


def test_nothing_runs_before_the_first_image_or_after_the_end(
    images: list[bytes], description: dict[str, Any], tmp_path: Path
) -> None:
    before = set(active_children())
    scoring = ScoringProcess(Settings(data_dir=tmp_path))
    assert set(active_children()) == before
    scoring.encode(images[:1], description)
    (process,) = set(active_children()) - before

    scoring.close()

    assert not process.is_alive()
