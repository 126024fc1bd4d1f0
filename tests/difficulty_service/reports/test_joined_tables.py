"""Tables beside the scores are joined by sample id, and what does not match is said."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import ReportError
from difficulty_service.base.tables import csv_writer
from difficulty_service.reports.joined_tables import (
    MOST_COLUMNS,
    JoinedColumns,
    JoinedDataset,
    TableSource,
    join_tables,
)
from tests.dataset_files import dataset_of

IDS = pa.array(["001", "2", "3"])


def no_dataset() -> None:
    raise AssertionError("the dataset is not needed")


def join(*sources: object) -> JoinedColumns:
    parsed = [TableSource.parse(str(source)) for source in sources]
    return join_tables(IDS, parsed, JoinedDataset(no_dataset))


@pytest.mark.parametrize(
    ("text", "table", "names"),
    [
        ("a.csv", "a.csv", ()),
        ("a.csv:", "a.csv", ()),
        ("s3://b/a.parquet:camera, date,camera", "s3://b/a.parquet", ("camera", "date")),
        ("C:/a.JSONL:x:y", "C:/a.JSONL", ("x:y",)),
        ("dataset:camera", "dataset", ("camera",)),
        ("datasets/", "datasets/", ()),
    ],
)
def test_a_source_is_a_table_and_names(text: str, table: str, names: tuple[str, ...]) -> None:
    assert TableSource.parse(text) == TableSource(table, names)


@pytest.mark.parametrize("name", ["sample_id", "image_id"])
def test_a_csv_is_joined_by_ids_that_keep_their_zeros(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_text(f"camera,{name}\nA,3\nB,001\nC,2\n")

    joined = join(tmp_path / "a.csv")

    assert joined.columns["camera"].at(range(3)) == ["B", "C", "A"]
    assert joined.notes == ()


def test_a_csv_that_was_written_here_is_joined_by_ids_that_a_spreadsheet_would_run(
    tmp_path: Path,
) -> None:
    table = pa.table({"sample_id": ["=1+1.png", "-x.png", "a.png"], "camera": ["A", "B", "C"]})
    with csv_writer(tmp_path / "a.csv", table.schema) as write:
        write(table)

    joined = join_tables(
        pa.array(["a.png", "-x.png", "=1+1.png"]),
        [TableSource(str(tmp_path / "a.csv"))],
        JoinedDataset(no_dataset),
    )

    assert (tmp_path / "a.csv").read_text().count("'") == 2
    assert joined.columns["camera"].at(range(3)) == ["C", "B", "A"]
    assert joined.notes == ()


def test_a_table_with_semicolons_and_decimal_commas_has_numbers_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sample_id;width\n001;1,5\n2;2,5\n3;3,0\n")

    joined = join(tmp_path / "a.csv")

    assert joined.columns["width"].at(range(3)) == ["1.5", "2.5", "3"]
    assert joined.notes == (
        "a.csv is read with semicolons between its columns and with decimal commas",
    )


def test_rows_that_do_not_match_are_counted(tmp_path: Path) -> None:
    table = {"sample_id": ["2", "2", "9", None, "8"], "camera": ["A", "B", "C", "D", "E"]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")

    joined = join(tmp_path / "a.parquet")

    assert joined.columns["camera"].at(range(3)) == [None, "A", None]
    assert joined.notes == (
        "a.parquet: 2 of 3 samples have no row, 2 of 3 ids of the table have no sample, "
        "1 row has no id, 1 row repeats an id, and the first row of each counts",
    )


def test_columns_that_cannot_be_shown_are_listed(tmp_path: Path) -> None:
    table = pa.table(
        {
            "sample_id": ["001", "2", "3"],
            "boxes": [[1], [2], []],
            "empty": pa.nulls(3),
            "x": [1] * 3,
        }
    )
    twice = table.append_column("x", table["x"]).append_column("y", table["x"])
    pq.write_table(twice, tmp_path / "a.parquet")

    joined = join(tmp_path / "a.parquet")

    assert list(joined.columns) == ["y"]
    assert "boxes (list<" in joined.notes[0]
    assert "empty (null)" in joined.notes[0]
    assert "x (several columns have this name)" in joined.notes[0]


def test_only_named_columns_are_joined(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sample_id,a,b,c\n2,1,2,3\n")

    assert list(join(f"{tmp_path}/a.csv:c,a").columns) == ["c", "a"]
    with pytest.raises(ReportError, match=r"no column 'd': .*its columns are sample_id, a"):
        join(f"{tmp_path}/a.csv:d")


def test_columns_of_one_name_are_told_apart_by_their_tables(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"sample_id,camera\n2,{name}\n")

    joined = join(tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "b.csv")

    assert list(joined.columns) == ["camera", "camera (b.csv)", "camera (b.csv 2)"]
    assert joined.columns["camera (b.csv)"].at([1]) == ["b"]


def test_columns_beyond_the_limit_are_listed(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(MOST_COLUMNS + 2)]
    (tmp_path / "a.csv").write_text(
        f"sample_id,{','.join(names)}\n2,{','.join('1' for _ in names)}\n"
    )

    joined = join(tmp_path / "a.csv")

    assert len(joined.columns) == MOST_COLUMNS
    assert "2 columns beyond the first 40 are not shown: c40, c41" in joined.notes[-1]


def test_a_table_of_paths_is_joined_by_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("file_name,camera\n001,A\n")

    assert join(tmp_path / "a.csv").columns["camera"].at(range(3)) == ["A", None, None]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("camera\nA\n", "no column of sample ids: its columns are camera"),
        ("sample_id,camera\n7,A\n", "none of 3 sample ids"),
    ],
)
def test_a_table_of_other_samples_is_refused(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "a.csv").write_text(content)

    with pytest.raises(ReportError, match=why):
        join(tmp_path / "a.csv")


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"b\.csv cannot be joined.*b\.csv"):
        join(tmp_path / "b.csv")


def test_columns_of_the_dataset_are_those_of_its_rows(tmp_path: Path) -> None:
    table = {"image": ["1.png", "2.png"], "label": ["x", "y"], "camera": ["A", "B"]}
    pq.write_table(pa.table(table), tmp_path / "photos.parquet")
    dataset = dataset_of(tmp_path / "photos.parquet")
    ids = pa.array(list(reversed(dataset.sample_ids)))

    joined = join_tables(ids, [TableSource("dataset", ("camera",))], JoinedDataset(lambda: dataset))

    assert joined.columns["camera"].at(range(2)) == ["B", "A"]
