"""Score files as CSV and JSON Lines: the same columns, with the provenance beside them."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest

from difficulty_service.analyses.selection.selection import read_ids
from difficulty_service.base.checksums import ChangedFile
from difficulty_service.base.errors import DatasetError, ScoreFileError
from difficulty_service.base.json_text import MOST_LEVELS
from difficulty_service.scores.file import (
    provenance_file,
    read_score_schema,
    read_scores,
    write_scores,
)
from difficulty_service.scores.provenance import Provenance

pytestmark = pytest.mark.analysis("selection")

IDS = ["a/1.png", "=1+1", "'=quoted", "'plain", '-1,\n"x"', "", "007", "é😀"]


def make_table() -> pa.Table:
    rows = len(IDS)
    return pa.table(
        {
            "sample_id": IDS,
            "label": pa.array([0] * rows, pa.int32()),
            "label_name": pa.array(["@cat", "1", "", "+", "cat", "cat", "cat", "cat"]),
            "rmd": [0.1, -1 / 3, 1e300, 5e-324, None, 0.0, -0.0, 7.0],
            "percentile": pa.array([0.1] * rows, pa.float32()),
            "nearest_label": pa.array([None, *[1] * (rows - 1)], pa.int32()),
        }
    )


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl", "S.CSV"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    write_scores(tmp_path / "s.parquet", make_table(), Provenance.of({"backbone": "builtin"}))
    expected = read_scores(tmp_path / "s.parquet")

    write_scores(tmp_path / name, make_table(), Provenance.of({"backbone": "builtin"}))

    scores = read_scores(tmp_path / name)
    assert scores.table.schema == expected.table.schema
    assert scores.table.to_pylist() == expected.table.to_pylist()
    assert scores.provenance == expected.provenance
    assert read_score_schema(tmp_path / name) == expected.table.schema


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl"])
def test_a_file_that_was_edited_is_read_with_a_warning(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_scores(path, make_table(), Provenance.of({"backbone": "builtin"}))
    path.write_bytes(path.read_bytes().replace(b"007", b"008"))

    with pytest.warns(ChangedFile, match=rf"{name} has changed .* if nobody has edited it"):
        scores = read_scores(path)

    assert "008" in scores.table["sample_id"].to_pylist()
    assert scores.provenance.backbone == "builtin"


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl"])
def test_tables_follow_each_other(tmp_path: Path, name: str) -> None:
    write_scores(tmp_path / name, [make_table(), make_table()], Provenance())

    assert read_scores(tmp_path / name, ["sample_id"]).table["sample_id"].to_pylist() == 2 * IDS


def test_a_spreadsheet_runs_no_text_as_a_formula(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.csv", make_table(), Provenance())

    with (tmp_path / "s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert [row["sample_id"] for row in rows[:4]] == ["a/1.png", "'=1+1", "''=quoted", "'plain"]
    assert rows[0]["label_name"] == "'@cat"
    assert float(rows[1]["rmd"]) == -1 / 3


def test_numbers_that_json_cannot_hold_are_null(tmp_path: Path) -> None:
    rmd = pa.array([float("inf"), float("nan"), *[1.0] * (len(IDS) - 2)])
    table = make_table().set_column(3, "rmd", rmd)

    write_scores(tmp_path / "s.jsonl", table, Provenance())

    lines = (tmp_path / "s.jsonl").read_text().splitlines()
    assert [json.loads(line)["rmd"] for line in lines[:3]] == [None, None, 1.0]


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl"])
def test_a_failed_write_leaves_the_old_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_scores(path, make_table(), Provenance.of({"seed": 1}))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    with pytest.raises(ScoreFileError, match="lack the column 'label'"):
        write_scores(
            path, [make_table(), make_table().drop_columns("label")], Provenance.of({"seed": 2})
        )

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert set(before) == {name, f"{name}.json"}


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl"])
def test_without_the_file_beside_it_there_is_no_provenance(tmp_path: Path, name: str) -> None:
    write_scores(tmp_path / name, make_table(), Provenance.of({"seed": 1}))
    provenance_file(tmp_path / name).unlink()

    with pytest.warns(ChangedFile, match=rf"{name} has lost {name}\.json beside it: the dataset"):
        scores = read_scores(tmp_path / name, ["rmd"])

    assert scores.provenance.to_json().keys() == {"warnings"}
    assert len(scores.table) == len(IDS)


def test_a_file_that_is_not_of_its_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("sample_id,rmd\na,hard\n")
    (tmp_path / "s.jsonl").write_text("sample_id\n")
    write_scores(tmp_path / "t.csv", make_table(), Provenance())
    provenance_file(tmp_path / "t.csv").write_text("{")

    for name, problem in (
        ("s.csv", "cannot be read as CSV"),
        ("s.jsonl", "cannot be read as JSON Lines"),
        ("t.csv", r"t\.csv\.json is damaged"),
        ("none.csv", "there is no score file"),
    ):
        with pytest.raises(ScoreFileError, match=problem):
            read_scores(tmp_path / name)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("sample_id,label\na,1\n")
    provenance_file(tmp_path / "s.csv").write_text('{"schema_version": 2}')

    with pytest.raises(ScoreFileError, match=r"s\.csv has no rmd; score with scorers='rmd'"):
        read_scores(tmp_path / "s.csv", ["sample_id", "rmd"])


@pytest.mark.parametrize("name", ["s.parquet", "s.csv", "s.jsonl"])
def test_only_columns_that_were_computed_are_in_a_file(tmp_path: Path, name: str) -> None:
    computed = ["sample_id", "label", "label_name", "rmd", "nearest_label", "percentile"]
    without_values = make_table().append_column("duplicate_of", pa.nulls(len(IDS), pa.string()))

    write_scores(tmp_path / "all.parquet", without_values, Provenance())
    write_scores(tmp_path / name, without_values, Provenance())

    assert read_score_schema(tmp_path / name).names == [*computed, "duplicate_of"]
    assert read_scores(tmp_path / name).table.column_names == [*computed, "duplicate_of"]


def test_columns_that_were_added_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("sample_id,mine\n0071,0.5\n")
    provenance_file(tmp_path / "s.csv").write_text('{"schema_version": 2}')

    table = read_scores(tmp_path / "s.csv", ["sample_id", "mine"]).table

    assert table.to_pylist() == [{"sample_id": "0071", "mine": 0.5}]


@pytest.mark.parametrize("name", ["s", "s.txt", "s.parquet.gz"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScoreFileError, match=r"expected is \.parquet, \.csv, \.jsonl"):
        write_scores(tmp_path / name, make_table(), Provenance())

    assert list(tmp_path.iterdir()) == []


def test_json_lines_with_lists_in_too_many_others_are_refused(tmp_path: Path) -> None:
    lists = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    (tmp_path / "s.jsonl").write_text(f'{{"sample_id": "a", "more": {lists}}}\n')

    with pytest.raises(ScoreFileError, match=r"cannot be read as JSON Lines.*nested too deeply"):
        read_scores(tmp_path / "s.jsonl")
    with pytest.raises(DatasetError, match="nested too deeply"):
        read_ids(tmp_path / "s.jsonl")
