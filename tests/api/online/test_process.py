"""Samples are scored in another process, whose death does not affect the service."""

import hashlib
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow.parquet as pq
import pytest

from api.http.problems import Problem
from api.jobs.files import GAUSSIANS_FILE, SCORES_FILE
from api.jobs.store import Job
from api.online.process import ScoringModels, ScoringProcess
from api.online.scorer import LoadedModels
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.base.files import replacing
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.fitted_gaussians import load_gaussians
from difficulty_service.scoring.pipeline import (
    ExtractedDataset,
    ScoreRequest,
    execute,
    score_features,
)
from tests.api.stored_results import stored_result
from tests.small_network import FRAGILE


@pytest.fixture(scope="module")
def images(photos: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(photos.rglob("*.png"))]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(data_dir=tmp_path_factory.mktemp("data"))


def job_with_files_at(prefix: str, scores_sha256: str = "0" * 64) -> Job:
    result = stored_result(prefix, scores_sha256=scores_sha256)
    known = {"id": "job", "state": "succeeded", "result": result}
    return Job(**dict.fromkeys(each.name for each in fields(Job)) | known)  # type: ignore[arg-type]


def make_job(settings: Settings, name: str, store: FeatureSource, **description: str) -> Job:
    """A job whose files are those of some features."""
    folder = Path(settings.artifact_root, "jobs", name)
    folder.mkdir(parents=True)
    fitted = fit_store(store, FitOptions())
    described = FeatureDescription.of(fitted.description.to_json() | description)
    replace(fitted, description=described).save(folder / GAUSSIANS_FILE)
    scores = folder / SCORES_FILE
    score_features(store, ScoreRequest(scores, fitted=fitted))
    digest = hashlib.sha256(scores.read_bytes()).hexdigest()
    return job_with_files_at(f"jobs/{name}", digest)


@pytest.fixture(scope="module")
def job(settings: Settings, extracted: ExtractedDataset) -> Job:
    """The job of the six images."""
    return make_job(settings, "six", extracted.store)


UNKNOWN = np.full(6, -1)


@pytest.fixture(scope="module")
def others() -> set[BaseProcess]:
    """Processes that score nothing here."""
    return set(active_children())


@pytest.fixture(scope="module")
def scoring(settings: Settings, others: set[BaseProcess]) -> Iterator[ScoringProcess]:  # noqa: ARG001 - found before it starts one
    with closing(ScoringProcess(settings)) as scoring:
        yield scoring


@pytest.mark.slow
def test_scores_of_images_are_those_of_the_job(
    scoring: ScoringProcess, settings: Settings, job: Job, images: list[bytes]
) -> None:
    labels = np.array([0, 0, 0, 1, 1, 1])
    table = pq.read_table(Path(settings.artifact_root, "jobs/six", SCORES_FILE))

    found = scoring.encode_and_score(job, images, labels)

    assert found.problems == (None,) * 6
    assert found.scores is not None
    np.testing.assert_array_equal(found.scores.labels, labels)
    for name in ("md", "rmd"):  # the margin of the file is without the sample itself
        expected = table[name].to_numpy()
        np.testing.assert_allclose(getattr(found.scores, name), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_scores_of_images_are_those_of_a_job_with_mirror_images(
    scoring: ScoringProcess, settings: Settings, photos: Path, images: list[bytes], tmp_path: Path
) -> None:
    network = BackboneOptions(flip=True)
    store = execute(Plan(str(photos), tmp_path, "builtin", network=network)).store
    flipped = make_job(settings, "flipped", store)
    table = pq.read_table(Path(settings.artifact_root, "jobs/flipped", SCORES_FILE))

    found = scoring.encode_and_score(flipped, images, np.array([0, 0, 0, 1, 1, 1]))

    assert found.scores is not None
    np.testing.assert_allclose(found.scores.rmd, table["rmd"].to_numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_an_image_that_takes_too_long_to_decode_ends_only_that_process(
    settings: Settings, job: Job, images: list[bytes]
) -> None:
    slow = b"P3 1990 2000 255\n" + b"1 " * (3 * 1990 * 2000)
    impatient = settings.model_copy(update={"image_seconds": 2.0})

    with closing(ScoringProcess(impatient)) as scoring:
        with pytest.raises(Problem, match="ended meanwhile") as caught:
            scoring.encode_and_score(job, [slow], UNKNOWN[:1])
        found = scoring.encode_and_score(job, images[:1], UNKNOWN[:1])

    assert caught.value.status == 503
    assert found.problems == (None,)


@pytest.mark.slow
def test_a_gpu_that_fails_for_good_ends_only_that_process(
    settings: Settings,
    photos: Path,
    images: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(settings, FRAGILE, execute(Plan(str(photos), tmp_path, FRAGILE)).store)

    with closing(ScoringProcess(settings)) as scoring:
        monkeypatch.setenv("GPU_FAILS", "1")
        with pytest.raises(Problem, match="ended meanwhile") as caught:
            scoring.encode_and_score(job, images[:1], UNKNOWN[:1])
        monkeypatch.delenv("GPU_FAILS")
        found = scoring.encode_and_score(job, images[:1], UNKNOWN[:1])

    assert caught.value.status == 503
    assert found.problems == (None,)


def test_an_unreadable_image_has_its_reason_in_its_place(
    scoring: ScoringProcess, job: Job, images: list[bytes]
) -> None:
    labels = np.array([0, 1, 1])

    found = scoring.encode_and_score(job, [images[0], b"no image", images[5]], labels)
    rows = found.rows(("ant", "bee"))

    assert [each is None for each in found.problems] == [True, False, True]
    assert found.scores is not None
    assert found.scores.labels.tolist() == [0, 1]
    assert rows[1] == {"error": found.problems[1]}
    assert [rows[at]["label"]["name"] for at in (0, 2)] == ["ant", "bee"]


def test_where_no_image_can_be_read_there_are_only_reasons(
    scoring: ScoringProcess, job: Job
) -> None:
    found = scoring.encode_and_score(job, [b"no image"], UNKNOWN[:1])

    assert found.scores is None
    assert found.rows(("ant", "bee")) == [{"error": found.problems[0]}]


@pytest.mark.slow
def test_a_problem_in_the_other_process_is_the_same_problem_here(
    scoring: ScoringProcess, settings: Settings, images: list[bytes], extracted: ExtractedDataset
) -> None:
    other = make_job(settings, "other", extracted.store, weights_sha256="0" * 64)

    with pytest.raises(Problem) as caught:
        scoring.encode_and_score(other, images[:1], UNKNOWN[:1])

    assert (caught.value.status, caught.value.type) == (409, "conflict")


def test_an_error_of_the_work_is_not_taken_for_the_death_of_the_process(
    scoring: ScoringProcess,
    others: set[BaseProcess],
    settings: Settings,
    job: Job,
    images: list[bytes],
) -> None:
    scoring.encode_and_score(job, images[:1], UNKNOWN[:1])
    (process,) = set(active_children()) - others
    Path(settings.artifact_root, "jobs", "folder", GAUSSIANS_FILE).mkdir(parents=True)

    with pytest.raises(RuntimeError, match="IndexError"):
        scoring.encode_and_score(job, images[:2], UNKNOWN[:1])
    with pytest.raises(Problem, match="gone"):
        scoring.describe(job_with_files_at("jobs/none"))
    with pytest.raises(OSError, match=GAUSSIANS_FILE):
        scoring.describe(job_with_files_at("jobs/folder"))

    assert process.is_alive()
    assert scoring.encode_and_score(job, images[:1], UNKNOWN[:1]).problems == (None,)


@pytest.mark.parametrize("change", ["cut", "bit"])
def test_a_local_copy_of_gaussians_that_is_damaged_is_made_again(
    settings: Settings, job: Job, tmp_path: Path, change: str
) -> None:
    artifacts = open_artifacts(settings.artifact_root)
    LoadedModels(artifacts, tmp_path).get(job)
    (path,) = tmp_path.rglob(GAUSSIANS_FILE)
    whole = path.read_bytes()
    path.write_bytes(whole[:20] if change == "cut" else bytes([whole[0] ^ 1]) + whole[1:])

    LoadedModels(artifacts, tmp_path).get(job)

    assert path.read_bytes() == whole


def test_scoring_while_the_job_is_deleted_says_that_its_files_are_gone(
    settings: Settings, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: Path) -> object:
        shutil.rmtree(path.parent)  # as the deletion does, at this moment
        return load_gaussians(path)

    def save(_source: BinaryIO, path: Path) -> None:
        with replacing(path):
            shutil.rmtree(path.parent)

    models = LoadedModels(open_artifacts(settings.artifact_root), tmp_path)
    for name, deleting in (("load_gaussians", load), ("save", save)):
        with monkeypatch.context() as patched:
            patched.setattr(f"api.online.scorer.{name}", deleting)
            with pytest.raises(Problem) as caught:
                models.get(job)
        assert (caught.value.status, caught.value.type) == (410, "gone")


def test_a_job_whose_files_are_gone_is_not_taken_for_one_with_the_gaussians_of_another(
    scoring: ScoringProcess, settings: Settings
) -> None:
    job = replace(job_with_files_at("jobs/none"), request={"dataset": {"root": "r"}})
    models = ScoringModels(open_artifacts(settings.artifact_root), scoring)

    with pytest.raises(Problem) as caught:
        models.get(job)

    assert (caught.value.status, caught.value.type) == (410, "gone")


def test_a_problem_crosses_processes_whole() -> None:
    problem = Problem(429, "too-many-requests", "d", "r", field="f", headers={"Retry-After": "1"})

    copy = pickle.loads(pickle.dumps(problem))  # noqa: S301 - made on this line

    assert vars(copy) == vars(problem)


def test_a_request_fails_whose_process_dies_and_the_next_finds_a_new_one(
    scoring: ScoringProcess, others: set[BaseProcess], job: Job, images: list[bytes]
) -> None:
    scoring.encode_and_score(job, images, UNKNOWN)
    (process,) = set(active_children()) - others
    assert process.pid is not None

    os.kill(process.pid, signal.SIGSTOP)
    threading.Timer(0.2, process.kill).start()
    with pytest.raises(Problem) as caught:
        scoring.encode_and_score(job, images, UNKNOWN)

    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    assert scoring.encode_and_score(job, images, UNKNOWN).problems == (None,) * 6


def test_a_process_that_died_between_requests_is_replaced_before_the_next(
    scoring: ScoringProcess, others: set[BaseProcess], job: Job, images: list[bytes]
) -> None:
    scoring.encode_and_score(job, images, UNKNOWN)
    (process,) = set(active_children()) - others
    process.kill()
    process.join(30)

    assert scoring.encode_and_score(job, images, UNKNOWN).problems == (None,) * 6


def test_nothing_runs_before_the_first_image_or_after_the_end(
    settings: Settings, job: Job, images: list[bytes]
) -> None:
    before = set(active_children())
    scoring = ScoringProcess(settings)
    assert set(active_children()) == before
    scoring.encode_and_score(job, images[:1], UNKNOWN[:1])
    (process,) = set(active_children()) - before

    scoring.close()

    assert not process.is_alive()
