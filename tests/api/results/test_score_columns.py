"""The mapped columns are those of the score file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from api.results import score_columns
from api.results.overview import make_overview
from api.results.score_columns import map_columns, write_columns
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance, RandomCheck
from difficulty_service.scores.samples import Decided, to_samples

CHECK = {"checked": 20, "wrong": 1, "among": 90, "since": 0}


@pytest.fixture
def scores(tmp_path: Path) -> ScoreFile:
    """Two rows, the second without most values."""
    rows = {
        "sample_id": ["ä.png", "=b"],
        "label": pa.array([2, 0], pa.int32()),
        "label_name": ["dog", "bird"],
        "rmd": [1.5, None],
        "nearest_label": pa.array([0, None], pa.int32()),
        "label_margin": [0.25, None],
        "percentile": pa.array([1.0, None], pa.float32()),
        "duplicate_of": [None, "ä.png"],
    }
    provenance = {"class_names": ["bird", "cat", "dog"], "dataset": "photos", "boxes": True}
    write_scores(tmp_path / "scores.parquet", pa.table(rows), Provenance.of(provenance))
    return read_scores(tmp_path / "scores.parquet")


def test_columns_are_read_as_they_were_written(scores: ScoreFile, tmp_path: Path) -> None:
    expected = to_samples(scores)

    write_columns(tmp_path / "columns" / "a.arrow", scores)
    columns = map_columns(tmp_path / "columns" / "a.arrow")

    assert columns is not None
    for name in ("labels", "nearest", "margins", "rmd", "agnostic", "percentiles"):
        np.testing.assert_array_equal(getattr(columns.samples, name), getattr(expected, name))
    assert columns.samples.ids.to_pylist() == ["ä.png", "=b"]
    assert columns.samples.copy_of.to_pylist() == [None, "ä.png"]
    assert columns.samples.names == {0: "bird", 1: "cat", 2: "dog"}
    assert columns.provenance.dataset == "photos"
    assert columns.samples.boxes
    assert columns.overview == make_overview(expected)
    assert columns.faults == {}


def test_suspicion_is_read_as_it_was_written(scores: ScoreFile, tmp_path: Path) -> None:
    table = scores.table.append_column("suspicion", pa.array([1.25, None]))
    table = table.append_column("suggested_label", pa.array([1, None], pa.int32()))
    for place, (label, probability) in enumerate([(1, 0.75), (0, 0.125), (None, None)]):
        name = ("first", "second", "third")[place]
        table = table.append_column(f"{name}_label", pa.array([label, None], pa.int32()))
        table = table.append_column(f"p_{name}", pa.array([probability, None], pa.float32()))

    write_columns(tmp_path / "a.arrow", ScoreFile(table, scores.provenance))
    columns = map_columns(tmp_path / "a.arrow")

    assert columns is not None
    assert columns.overview.summary.by_suspicion
    assert columns.samples.shares(0) == [(1, 0.75), (0, 0.125)]
    assert columns.samples.shares(1) == []
    np.testing.assert_array_equal(columns.samples.suspicion, [1.25, np.nan])
    assert columns.samples.nearest.tolist() == [1, -1]


def test_faults_of_images_are_read_as_they_were_written(scores: ScoreFile, tmp_path: Path) -> None:
    def faults_of(values: list[str | None]) -> list[str | None]:
        faults = pa.array(values, pa.string()).dictionary_encode()
        table = scores.table.append_column("image_fault", faults)
        write_columns(tmp_path / "a.arrow", ScoreFile(table, scores.provenance))
        columns = map_columns(tmp_path / "a.arrow")
        assert columns is not None
        return columns.faults["image_fault"].at([0, 1])

    assert faults_of([None, "cut off"]) == [None, "cut off"]
    assert faults_of([None, None]) == [None, None]


def test_what_was_verified_is_read_as_it_was_written(scores: ScoreFile, tmp_path: Path) -> None:
    table = scores.table.append_column("mark", pa.array([None, "relabel"]).dictionary_encode())
    marked = {"marks": {"relabel": 1}, "round": 2, "newly_doubtful": 3, "random_check": CHECK}
    provenance = scores.provenance.updated(Provenance.of(marked))

    write_columns(tmp_path / "a.arrow", ScoreFile(table, provenance))
    columns = map_columns(tmp_path / "a.arrow")

    assert columns is not None
    assert columns.samples.verified.tolist() == [False, True]
    said = "Round 2: 1 relabelled, 0 dropped, 0 kept · 3 newly doubtful"
    assert columns.samples.decided == Decided(said, 1, RandomCheck(**CHECK))
    assert columns.overview.summary.round == said


@pytest.mark.slow
def test_what_converts_arrays_is_loaded_before_the_first_request() -> None:
    script = (
        "import sys, numpy, pyarrow; from api.results.score_columns import load_conversions; "
        "load_conversions(); before = set(sys.modules); "
        "pyarrow.array(numpy.zeros(3)).to_numpy(); print(len(set(sys.modules) - before))"
    )

    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "0"


def test_a_file_of_another_version_is_not_used(
    scores: ScoreFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_columns(tmp_path / "a.arrow", scores)

    monkeypatch.setattr(score_columns, "FORMAT", 99)

    assert map_columns(tmp_path / "a.arrow") is None
    assert map_columns(tmp_path / "b.arrow") is None


@pytest.mark.parametrize("damaged", ["nothing", "half", "text", "another"])
def test_a_damaged_file_is_not_used(scores: ScoreFile, tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "a.arrow"
    whole = write_columns(path, scores).read_bytes()

    if damaged == "another":
        table = pa.table({"ids": ["a"]})
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        contents = {"nothing": b"", "half": whole[: len(whole) // 2], "text": b"no columns\n" * 9}
        path.write_bytes(contents[damaged])

    assert map_columns(path) is None
