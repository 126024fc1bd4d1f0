"""The pages' columns are those that the job has published, or are made from its scores."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from sqlalchemy import Engine

from api.http.problems import Problem
from api.imported import import_scores
from api.jobs.files import COLUMNS_FILE, SCORES_FILE, columns_file
from api.jobs.store import Job
from api.results import score_columns
from api.results.score_columns import OpenScores
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture(params=["local", "remote"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Artifacts]:
    """A folder, and a storage of which files have to be copied."""
    is_local = request.param == "local"
    yield open_artifacts(str(tmp_path / "artifacts") if is_local else "memory://results")
    MemoryFileSystem.store.clear()


@pytest.fixture
def job(sqlite_engine: Engine, artifacts: Artifacts) -> Job:
    """A finished job with its scores and columns."""
    table = score_table(
        [0, 0, 1],
        ids=["a.png", "b.png", "c.png"],
        rmd=[1.5, 2.5, -1.0],
        nearest_label=[0, 0, 1],
        label_margin=[-1.0, -2.0, -3.0],
        percentile=[0.5, 1.0, 0.0],
    )
    scores = ScoreFile(table, Provenance.of({"class_names": ["cat", "dog"]}))
    return import_scores(sqlite_engine, artifacts, scores, "photos")


def test_published_columns_are_used_without_the_scores(
    settings: Settings, artifacts: Artifacts, job: Job
) -> None:
    delete(artifacts, job, SCORES_FILE)

    columns = OpenScores(settings, artifacts).get(job)

    assert columns.samples.ids.to_pylist() == ["a.png", "b.png", "c.png"]
    assert OpenScores(settings, artifacts).get(job).overview.num_classes == 2


def test_columns_that_were_not_published_are_made_once(
    settings: Settings, artifacts: Artifacts, job: Job
) -> None:
    delete(artifacts, job, COLUMNS_FILE)

    first = OpenScores(settings, artifacts).get(job)
    delete(artifacts, job, SCORES_FILE)
    second = OpenScores(settings, artifacts).get(job)

    assert first.overview == second.overview
    assert columns_file(settings, job).exists()


def test_columns_of_another_version_are_made_anew(
    settings: Settings, artifacts: Artifacts, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    OpenScores(settings, artifacts).get(job)
    monkeypatch.setattr(score_columns, "FORMAT", score_columns.FORMAT + 1)

    columns = OpenScores(settings, artifacts).get(job)

    assert len(columns.samples) == 3
    assert score_columns.map_columns(columns_file(settings, job)) is not None


def test_damaged_columns_are_made_anew(
    settings: Settings, artifacts: Artifacts, job: Job, tmp_path: Path
) -> None:
    (tmp_path / "damaged").write_bytes(b"ARROW1 and nothing more")
    artifacts.put(tmp_path / "damaged", key(job, COLUMNS_FILE))

    assert len(OpenScores(settings, artifacts).get(job).samples) == 3
    assert len(OpenScores(settings, artifacts).get(job).samples) == 3


def test_a_job_without_its_files_is_gone(
    settings: Settings, artifacts: Artifacts, job: Job
) -> None:
    assert job.result is not None
    artifacts.delete_prefix(job.result.prefix)

    with pytest.raises(Problem) as caught:
        OpenScores(settings, artifacts).get(job)

    assert caught.value.status == 410


def key(job: Job, name: str) -> str:
    assert job.result is not None
    return f"{job.result.prefix}/{name}"


def delete(artifacts: Artifacts, job: Job, name: str) -> None:
    artifacts.root.filesystem.delete_file(artifacts.root.join(key(job, name)).path)
