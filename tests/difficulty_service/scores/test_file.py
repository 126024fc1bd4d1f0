"""The score file: what is written is read, and what is not a score file is named."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import NoScores, ScoreFileError
from difficulty_service.scores.file import METADATA_KEY, SCHEMA, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance


def make_table() -> pa.Table:
    return pa.table(
        {
            "sample_id": ["a/1.png", "b/2.png"],
            "label": pa.array([0, 1], pa.int32()),
            "label_name": pa.array(["a", "b"]).dictionary_encode(),
            "rmd": [-3.5, 12.25],
            "md": [1.0, None],
        }
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"

    write_scores(path, make_table(), Provenance.of({"backbone": "builtin"}))

    scores = read_scores(path)
    columns = ["sample_id", "label", "label_name", "md", "rmd"]
    assert scores.table.schema == pa.schema([SCHEMA.field(name) for name in columns])
    assert scores.table["rmd"].to_pylist() == [-3.5, 12.25]
    assert scores.table["md"].to_pylist() == [1.0, None]
    assert scores.provenance.backbone == "builtin"


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.parquet", make_table(), Provenance())

    assert read_scores(tmp_path / "s.parquet", ["rmd"]).table.column_names == ["rmd"]


def test_the_same_scores_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.parquet", "two.parquet"):
        write_scores(tmp_path / name, make_table(), Provenance.of({"b": 1, "a": 2}))

    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    write_scores(path, make_table(), Provenance())
    before = path.read_bytes()

    with pytest.raises(ScoreFileError, match="lack the column 'label'"):
        write_scores(path, make_table().drop_columns("label"), Provenance())

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["scores.parquet"]


def test_an_unknown_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScoreFileError, match=r"unknown score columns \['rdm'\]"):
        write_scores(
            tmp_path / "s.parquet", make_table().append_column("rdm", [[1, 2]]), Provenance()
        )


def test_a_null_where_none_may_be_is_named(tmp_path: Path) -> None:
    table = make_table().set_column(0, "sample_id", [["a", None]])

    with pytest.raises(ScoreFileError, match="'sample_id' has 1 nulls"):
        write_scores(tmp_path / "s.parquet", table, Provenance())


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    table = make_table().set_column(3, "rmd", [["hard", "easy"]])

    with pytest.raises(ScoreFileError, match="'rmd' cannot be double"):
        write_scores(tmp_path / "s.parquet", table, Provenance())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScoreFileError, match="there is no score file"):
        read_scores(tmp_path / "nowhere.parquet")


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.parquet").write_text("sample_id,rmd\n")

    with pytest.raises(ScoreFileError, match="cannot be read as Parquet"):
        read_scores(tmp_path / "s.parquet")


@pytest.mark.parametrize("lost", [["sample_id"], ["md", "rmd"]])
def test_a_table_that_is_no_score_file_is_named(tmp_path: Path, lost: list[str]) -> None:
    pq.write_table(make_table().drop_columns(lost), tmp_path / "s.parquet")

    with pytest.raises(NoScores, match=r"not a score file.*; name the file that `difficulty"):
        read_scores(tmp_path / "s.parquet")


def test_another_version_is_named(tmp_path: Path) -> None:
    metadata = {METADATA_KEY: json.dumps({"schema_version": 1})}
    pq.write_table(make_table().replace_schema_metadata(metadata), tmp_path / "s.parquet")

    with pytest.raises(ScoreFileError, match=r"score schema 1, but .* reads 2; score again"):
        read_scores(tmp_path / "s.parquet")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.parquet", make_table(), Provenance())
    table = pq.read_table(tmp_path / "s.parquet").drop_columns(["label"])
    pq.write_table(table, tmp_path / "s.parquet")

    with pytest.raises(ScoreFileError, match=r"s\.parquet has no column 'label'"):
        read_scores(tmp_path / "s.parquet")


def test_a_column_without_any_value_stays(tmp_path: Path) -> None:
    table = make_table().append_column("duplicate_of", pa.nulls(2, pa.string()))

    write_scores(tmp_path / "s.parquet", table, Provenance())

    assert pq.read_schema(tmp_path / "s.parquet").names[-1] == "duplicate_of"
    assert read_scores(tmp_path / "s.parquet").table["duplicate_of"].null_count == 2


def test_an_absent_column_is_named_with_the_scorer_to_ask_for(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.parquet", make_table(), Provenance())

    with pytest.raises(ScoreFileError, match=r"s\.parquet has no knn; score with scorers='knn'$"):
        read_scores(tmp_path / "s.parquet", ["sample_id", "knn"])


def test_a_misspelt_column_is_followed_by_the_one_that_is_meant(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.parquet", make_table(), Provenance())

    with pytest.raises(ScoreFileError, match="no column 'suspision'; did you mean 'suspicion'"):
        read_scores(tmp_path / "s.parquet", ["suspision"])


def test_all_parts_of_a_file_have_the_columns_of_the_first(tmp_path: Path) -> None:
    more = make_table().append_column("knn", [[0.5, 1.0]])

    with pytest.raises(ScoreFileError, match=r"the first scores .* lack the columns \['knn'\]"):
        write_scores(tmp_path / "s.parquet", [make_table(), more], Provenance())
    with pytest.raises(ScoreFileError, match="the scores lack the column 'knn'"):
        write_scores(tmp_path / "s.parquet", [more, make_table()], Provenance())

    assert list(tmp_path.iterdir()) == []


def test_each_table_becomes_a_row_group(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.parquet", [make_table(), make_table()], Provenance())

    assert pq.read_metadata(tmp_path / "s.parquet").num_row_groups == 2


def test_a_bad_part_leaves_no_file(tmp_path: Path) -> None:
    bad = make_table().drop_columns("label")

    with pytest.raises(ScoreFileError, match="lack the column 'label'"):
        write_scores(tmp_path / "s.parquet", [make_table(), bad], Provenance())

    assert list(tmp_path.iterdir()) == []
