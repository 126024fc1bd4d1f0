"""The columns of attached tables are read from wherever the files of jobs are stored."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from sqlalchemy import Engine

from api.imported import import_scores
from api.jobs.columns import AttachedTable, attach
from api.jobs.files import joined_copy, joined_prefix
from api.jobs.joined_table import JOINED_FILE, JoinedTable
from api.results.joined_columns import write_joined
from api.results.open_columns import AttachedColumns, OpenColumns
from api.results.score_columns import OpenScores
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from difficulty_service.reports.sample_columns import SampleColumn, to_sample_column
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

IDS = pa.array(["a.png", "b.png"])


@pytest.fixture(params=["local", "remote"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Artifacts]:
    """A folder, and a storage of which files have to be copied."""
    is_local = request.param == "local"
    yield open_artifacts(str(tmp_path / "artifacts") if is_local else "memory://results")
    MemoryFileSystem.store.clear()


def test_columns_of_one_name_are_told_apart_and_read_again_only_where_they_changed(
    sqlite_engine: Engine, artifacts: Artifacts, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    scores = ScoreFile(
        score_table(
            [0, 1],
            ids=IDS.to_pylist(),
            rmd=[1.0, 2.0],
            nearest_label=[0, 1],
            label_margin=[-1.0, -1.0],
            percentile=[0.0, 1.0],
        ),
        Provenance.of({"class_names": ["cat", "dog"]}),
    )
    job = import_scores(sqlite_engine, artifacts, scores, "photos")
    columns = OpenColumns(
        AttachedColumns(sqlite_engine, settings, artifacts), OpenScores(settings, artifacts)
    )

    def put(name: str, version: str, values: list[str]) -> None:
        column = to_sample_column("camera", pa.chunked_array([values]))
        assert isinstance(column, SampleColumn)
        path = write_joined(tmp_path / version, IDS, {"camera": column})
        artifacts.put(path, f"{joined_prefix(job, version)}/{JOINED_FILE}")
        attach(
            sqlite_engine, job.id, AttachedTable(name, version, JoinedTable(columns=(), notes=()))
        )

    put("b.csv", "1", ["A", "B"])
    put("a.csv", "2", ["C", "D"])
    before = columns.get(job)
    put("b.csv", "3", ["E", "F"])
    after = columns.get(job)

    assert {name: column.at([0, 1]) for name, column in before.items()} == {
        "camera": ["A", "B"],
        "camera (a.csv)": ["C", "D"],
    }
    assert after["camera"].at([0, 1]) == ["E", "F"]
    assert after["camera (a.csv)"].name == "camera (a.csv)"
    assert joined_copy(settings, job, "3").exists() is not artifacts.root.is_local
