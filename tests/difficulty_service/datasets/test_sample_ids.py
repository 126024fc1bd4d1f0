"""Ids of the rows of tables: an id column, unique paths, or `file#row`."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError, DuplicateSampleId
from tests.dataset_files import dataset_of


def _write(file: Path, /, **columns: object) -> str:
    pq.write_table(pa.table({"label": [0, 1], **columns}), file)
    return str(file)


def _ids(path: str, **options: str) -> list[str]:
    return list(dataset_of(path, **options).sample_ids)


def test_ids_come_from_the_id_column_as_text(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", path=["a.png", "b.png"], key=[7, 9])

    assert _ids(path, id_column="key") == ["7", "9"]


def test_ids_of_a_csv_keep_their_leading_zeros(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,key\na.png,0,007\nb.png,1,7\n")

    assert _ids(str(tmp_path / "t.csv"), id_column="key") == ["007", "7"]


def test_duplicate_ids_name_the_two_rows(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", image=[b"x", b"x"], key=["a", "a"])

    with pytest.raises(DuplicateSampleId, match=r"'a' .* t\.parquet#0 and t\.parquet#1"):
        dataset_of(path, id_column="key")


def test_null_ids_are_an_error_with_the_first_row(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", image=[b"x", b"x"], key=pa.array(["a", None]))

    with pytest.raises(DatasetError, match=r"null 1 times, first at t\.parquet#1"):
        dataset_of(path, id_column="key")


@pytest.mark.parametrize("column", ["path", "file_name", "file", "filename"])
def test_unique_paths_beside_the_images_are_the_ids(tmp_path: Path, column: str) -> None:
    path = _write(tmp_path / "t.parquet", image=[b"x", b"y"], **{column: ["b/1.png", "a/1.png"]})

    assert _ids(path) == ["b/1.png", "a/1.png"]


def test_the_paths_inside_an_image_column_are_the_ids(tmp_path: Path) -> None:
    cells = [{"bytes": b"x", "path": "b.png"}, {"bytes": b"y", "path": "a.png"}]
    parquet = _write(tmp_path / "t.parquet", image=cells)
    rows = [{"image": {"path": f"{name}.png"}, "label": 0} for name in "ba"]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))

    assert _ids(parquet) == ["b.png", "a.png"]
    assert _ids(str(tmp_path / "t.jsonl")) == ["b.png", "a.png"]


@pytest.mark.parametrize(
    "paths", [["a.png", "a.png"], ["a.png", None], ["a.png", ""]], ids=["twice", "null", "empty"]
)
def test_paths_that_do_not_identify_every_row_leave_file_and_row(
    tmp_path: Path, paths: list[str | None]
) -> None:
    path = _write(tmp_path / "t.parquet", image=[b"x", b"y"], path=pa.array(paths))

    assert _ids(path) == ["t.parquet#0", "t.parquet#1"]


def test_the_same_paths_in_two_files_leave_file_and_row(tmp_path: Path) -> None:
    for name in ("a", "b"):
        _write(tmp_path / f"{name}.parquet", image=[b"x", b"y"], path=["1.png", "2.png"])

    assert _ids(str(tmp_path)) == ["a.parquet#0", "a.parquet#1", "b.parquet#0", "b.parquet#1"]


def test_a_row_without_a_label_is_named_by_its_path(tmp_path: Path) -> None:
    columns = {"image": [b"x", b"y"], "path": ["b.png", "a.png"], "label": pa.array([None, 0])}

    dataset = dataset_of(_write(tmp_path / "t.parquet", **columns))

    assert dataset.sample_ids == ["a.png"]
    assert list(dataset.skipped) == [("b.png", "the label is missing")]
