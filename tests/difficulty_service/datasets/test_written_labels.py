"""Labels of tables are read as they are written, whatever they look like, and by their names."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import Dataset
from tests.dataset_files import dataset_of

LOOK_LIKE_OTHERS = [
    ["007", "7", "07"],
    ["1E2", "100", "3"],
    ["true", "false", "1"],
    ["10:30", "11:30", "12"],
    ["2024-01-05", "2024-01-06", "2024-01-07"],
    ["2024-01-05T10:00:00", "2024-01-05T10:00:00Z", "x"],
    ["0x10", "16", "1_6"],
    ["NaN", "NA", "null"],
]


def _labels(dataset: Dataset) -> list[str]:
    return [dataset.class_names[label] for label in dataset.labels.tolist()]


def _write_text(path: Path, labels: list[str], column: str = "label") -> Path:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    rows = [delimiter.join([f"{row}.png", label]) for row, label in enumerate(labels)]
    path.write_text("\n".join([delimiter.join(["path", column]), *rows]) + "\n")
    return path


@pytest.mark.parametrize("labels", LOOK_LIKE_OTHERS)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl"])
def test_labels_of_text_are_classes_as_they_are_written(
    tmp_path: Path, name: str, labels: list[str]
) -> None:
    path = tmp_path / name
    if path.suffix == ".jsonl":
        rows = [{"path": f"{row}.png", "label": label} for row, label in enumerate(labels)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        _write_text(path, labels)

    assert _labels(dataset_of(path)) == labels


@pytest.mark.parametrize("column", ["label", "Class", "noisy_label", "y"])
def test_columns_that_are_found_as_labels_are_read_as_text(tmp_path: Path, column: str) -> None:
    assert _labels(dataset_of(_write_text(tmp_path / "t.csv", ["007", "7"], column))) == [
        "007",
        "7",
    ]


def test_a_chosen_column_is_read_as_text_with_its_names(tmp_path: Path) -> None:
    path = _write_text(tmp_path / "t.csv", ["007", "7"], "kind of thing")

    assert _labels(dataset_of(path, label_column="kind of thing")) == ["007", "7"]


def test_numbers_in_a_table_of_text_are_integers_whose_missing_ones_are_listed(
    tmp_path: Path,
) -> None:
    dataset = dataset_of(_write_text(tmp_path / "t.csv", ["10.0", "", "9.0", "-1.0"]))

    assert dataset.class_names == ("9", "10")
    assert [name for name, _ in dataset.skipped] == ["1.png", "3.png"]


def test_names_of_numbers_are_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,label_name\na.png,0,1E2\nb.png,1,007\n")

    assert _labels(dataset_of(tmp_path / "t.csv")) == ["1E2", "007"]


def test_blanks_after_commas_belong_to_no_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path, label, split\na.png, cat, train\nb.png, dog, train\n")

    dataset = dataset_of(tmp_path / "t.csv", split="train", label_column="label")

    assert dataset.class_names == ("cat", "dog")
    assert dataset.sample_ids == ["a.png", "b.png"]


def test_blanks_before_commas_belong_to_no_name_where_they_are_on_both_sides(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("path , label , n\na.png , cat , 1\nb.png , dog , 2\n")

    dataset = dataset_of(tmp_path / "t.csv")

    assert dataset.class_names == ("cat", "dog")
    assert dataset.sample_ids == ["a.png", "b.png"]


def test_quotes_after_blanks_belong_to_no_name(tmp_path: Path) -> None:
    rows = '"a.png", "cat", "train"\n"b.png", "5"" dog", "train"\n"c.png", "", "train"\n'
    rows += '"d.png", a "b", "train"\n"e.png", "a" or "b", "train"\n'
    (tmp_path / "t.csv").write_text('"path", "label", "split"\n' + rows)

    dataset = dataset_of(tmp_path / "t.csv", split="train")

    assert dataset.class_names == ('"a" or "b"', '5" dog', 'a "b"', "cat")
    assert dataset.sample_ids == ["a.png", "b.png", "d.png", "e.png"]
    assert dataset.skipped == [("c.png", "the label is missing")]


def test_a_comma_in_quotes_after_a_blank_is_refused_with_the_blank(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('path, label\na.png, "cat, small"\n')

    with pytest.raises(DatasetError, match="in quotes, without a blank before these"):
        dataset_of(tmp_path / "t.csv")


def test_columns_in_another_encoding_are_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("path,größe\na.png,007\nb.png,7\nö.png,7\n".encode("cp1252"))

    assert _labels(dataset_of(tmp_path / "t.csv", label_column="größe")) == ["007", "7", "7"]


def test_times_inside_of_json_stay_text(tmp_path: Path) -> None:
    row = {"path": "a.png", "label": "2024-01-05", "x": [{"at": "2024-01-05"}], "n": 1}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")

    assert _labels(dataset_of(tmp_path / "t.jsonl", id_column="label")) == ["2024-01-05"]


def _declare(
    path: Path, labels: list[Any], names: list[str] | None, feature: str = "plain"
) -> None:
    table = pa.table({"path": [f"{path.stem}{row}.png" for row in range(len(labels))]})
    table = table.append_column("label", pa.array(labels))
    if names is not None:
        label: Any = {"names": names, "_type": "ClassLabel"}
        kinds = {"plain": label, "list": {"feature": label, "_type": "List"}, "old": [label]}
        info = {"info": {"features": {"label": kinds[feature]}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    pq.write_table(table, path)


@pytest.mark.parametrize("feature", ["plain", "list", "old"])
def test_files_that_number_their_classes_otherwise_are_matched_by_name(
    tmp_path: Path, feature: str
) -> None:
    def as_cells(labels: list[int]) -> list[Any]:
        return labels if feature == "plain" else [[label] for label in labels]

    _declare(tmp_path / "a.parquet", as_cells([0, 1, 0]), ["cat", "dog"], feature)
    _declare(tmp_path / "b.parquet", as_cells([0, 1, 2, -1]), ["dog", "cow", "cat"], feature)

    dataset = dataset_of(tmp_path)

    assert _labels(dataset) == ["cat", "dog", "cat", "dog", "cow", "cat"]
    assert [name for name, _ in dataset.skipped] == ["b3.png"]


def test_two_classes_of_one_name_stay_two_in_files_of_another_order(tmp_path: Path) -> None:
    _declare(tmp_path / "a.parquet", [0, 1, 2], ["crane", "cat", "crane"])
    _declare(tmp_path / "b.parquet", [0, 1, 2], ["cat", "crane", "crane"])

    assert dataset_of(tmp_path).labels.tolist() == [0, 1, 2, 1, 0, 2]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([0, 1], None, r"'a.parquet' declares the names .* 'b.parquet' only has their numbers"),
        ([0, 2], ["dog", "cat"], "'b.parquet' has the label 2, and declares names of 2 classes"),
    ],
)
def test_files_whose_classes_cannot_be_matched_are_refused(
    tmp_path: Path, labels: list[int], names: list[str] | None, message: str
) -> None:
    _declare(tmp_path / "a.parquet", [0, 1], ["cat", "dog"])
    _declare(tmp_path / "b.parquet", labels, names)

    with pytest.raises(DatasetError, match=message):
        dataset_of(tmp_path)


def test_declared_names_of_lists_are_those_of_their_classes(tmp_path: Path) -> None:
    _declare(tmp_path / "a.parquet", [[1], [0], []], ["dog", "cat"], "list")

    assert _labels(dataset_of(tmp_path / "a.parquet")) == ["cat", "dog"]


@pytest.mark.parametrize("rows", [("a.png,1", "b.png,2"), ("a.png,cat", "b.png,dog")])
def test_names_of_columns_again_below_are_refused_with_their_row(
    tmp_path: Path, rows: tuple[str, ...]
) -> None:
    lines = [f"{row},," for row in ("path,label", *rows, "path, label", *rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines))

    with pytest.raises(DatasetError, match=r"row 3 of 't\.csv' has the names of its columns again"):
        dataset_of(tmp_path / "t.csv")


def test_a_text_that_is_called_as_its_column_is_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\ntext,noun\nlabel,noun\ngo,label\n")

    assert len(dataset_of(tmp_path / "t.csv", text_column="text").labels) == 3
