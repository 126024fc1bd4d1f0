"""Tables of labels as people and tools write them, and what of them is used."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.analyses.annotators.annotator_labels import AnnotatorLabels, read_labels
from difficulty_service.base.errors import DatasetError
from difficulty_service.base.tables import csv_writer
from difficulty_service.datasets.label_tables import LabelColumns, open_label_table

IDS = ("a", "b", "c", "7")
CLASSES = ("cat", "dog", "owl")

Label = tuple[str, str, str]


def read(
    source: Path | str | pa.Table,
    *annotators: str,
    classes: tuple[str, ...] = CLASSES,
    ids: tuple[str, ...] = IDS,
    **columns: str,
) -> AnnotatorLabels:
    named = LabelColumns(annotators, **columns)
    return read_labels(open_label_table(source), named, pa.array(ids), classes)


def found(labels: AnnotatorLabels, classes: tuple[str, ...] = CLASSES) -> set[Label]:
    given = labels.given
    return {
        (IDS[sample], labels.annotators[annotator], classes[label])
        for sample, annotator, label in zip(
            given.samples.tolist(), given.annotators.tolist(), given.classes.tolist(), strict=True
        )
    }


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


TWO_LABELS = {("a", "ann", "cat"), ("b", "ann", "dog"), ("a", "bob", "owl")}


def test_columns_of_one_annotator_each_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "sample_id,ann,bob\na,cat,owl\nb,dog,\n")

    labels = read(path)

    assert found(labels) == TWO_LABELS
    assert labels.warnings == ()


@pytest.mark.parametrize("name", ["path", "image_id", "Image"])
def test_ids_are_found_in_a_column_of_names_of_images(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "labels.csv", f"{name},ann,bob\na,cat,owl\nb,dog,\n")

    labels = read(path, "ann", "bob")

    assert found(labels) == TWO_LABELS
    assert labels.warnings == ()


def test_a_column_of_names_of_images_is_no_annotator(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "sample_id,file,ann,bob\na,cat,cat,owl\nb,,dog,\n")

    labels = read(path)

    assert found(labels) == TWO_LABELS


def test_ids_that_a_spreadsheet_would_run_are_read_from_a_csv_that_was_written_here(
    tmp_path: Path,
) -> None:
    ids = ("=1+1.png", "-x.png")
    table = pa.table({"sample_id": ids, "ann": ["cat", "dog"]})
    with csv_writer(tmp_path / "labels.csv", table.schema) as write_table:
        write_table(table)

    labels = read(tmp_path / "labels.csv", ids=ids)

    assert labels.given.samples.tolist() == [0, 1]
    assert labels.given.classes.tolist() == [0, 1]


def test_rows_of_one_label_each_are_read(tmp_path: Path) -> None:
    text = "sample_id,annotator,label,seconds\na,ann,cat,3\nb,ann,dog,1\na,bob,owl,2\n"

    labels = read(write(tmp_path / "labels.csv", text))

    assert found(labels) == TWO_LABELS


def test_columns_may_have_other_names_and_wildcards(tmp_path: Path) -> None:
    table = pd.DataFrame({"photo": ["a", "b"], "rand_1": ["cat", "dog"], "rand_2": ["owl", None]})
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table(table), path)

    labels = read(path, "rand_*", sample_id="photo")

    assert labels.annotators == ("rand_1", "rand_2")
    assert len(labels.given) == 3


def test_rows_may_name_their_columns_otherwise() -> None:
    table = pa.table({"sample_id": ["a"], "worker": ["ann"], "answer": ["cat"]})

    labels = read(table, annotator="worker", label="answer")

    assert found(labels) == {("a", "ann", "cat")}


def test_ids_may_be_numbers_in_a_column_of_another_name() -> None:
    table = pa.table({"index": [7, 8], "ann": [0, 1]})

    labels = read(table, "ann")

    assert found(labels) == {("7", "ann", "cat")}


def test_the_rows_of_a_dataset_without_ids_are_found_by_file_and_row(tmp_path: Path) -> None:
    for name in ("one", "two"):
        pq.write_table(pa.table({"ann": ["cat", "dog"]}), tmp_path / f"{name}.parquet")

    labels = read(f"{tmp_path}/*.parquet", "ann", ids=("one.parquet#1", "two.parquet#0"))

    assert labels.given.samples.tolist() == [0, 1]
    assert labels.given.classes.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "classes", "index"),
    [
        pytest.param([1], CLASSES, 1, id="index of a class"),
        pytest.param([1.0, None], CLASSES, 1, id="float beside a missing one"),
        pytest.param(["1"], CLASSES, 1, id="index as text"),
        pytest.param(["5"], ("3", "5"), 1, id="name that is a number"),
        pytest.param([" dog "], CLASSES, 1, id="spaces around a name"),
        pytest.param([True], CLASSES, 1, id="boolean"),
        pytest.param(pa.array(["dog"]).dictionary_encode(), CLASSES, 1, id="dictionary"),
    ],
)
def test_a_label_is_the_name_or_the_index_of_a_class(
    values: object, classes: tuple[str, ...], index: int
) -> None:
    table = pa.table({"sample_id": ["a", "b"][: len(values)], "ann": values})  # type: ignore[arg-type]

    labels = read(table, classes=classes)

    assert labels.given.classes.tolist() == [index]
    assert labels.warnings == ()


@pytest.mark.parametrize("missing", [None, "", "-1", " "])
def test_missing_labels_are_none(missing: str | None) -> None:
    table = pa.table({"sample_id": ["a", "b"], "ann": pa.array(["cat", missing], pa.string())})

    labels = read(table)

    assert found(labels) == {("a", "ann", "cat")}
    assert labels.warnings == ()


def test_labels_of_other_classes_and_samples_are_left_out_and_told() -> None:
    table = pa.table(
        {
            "sample_id": ["a", "b", "c", "z"],
            "ann": ["cat", "zebra", "zebra", "dog"],
            "bob": ["9", "12.5", None, "owl"],
        }
    )

    labels = read(table)

    assert found(labels) == {("a", "ann", "cat")}
    assert labels.warnings == (
        "4 labels of the table of labels of no class of the dataset are left out: "
        "zebra (2), 9 (1), 12.5 (1); numbers are class indices only if all are below 3",
        "2 labels of unknown samples are left out",
        "no label of bob is usable",
    )


def test_an_integer_is_no_index_where_the_names_of_classes_are_integers() -> None:
    table = pa.table({"sample_id": ["a", "b"], "ann": ["3", "1"]})

    labels = read(table, classes=("3", "5"))

    assert labels.given.classes.tolist() == [0]
    assert "1 (1)" in labels.warnings[0]


def test_the_last_of_two_labels_of_one_annotator_and_sample_counts() -> None:
    table = pa.table(
        {"sample_id": ["a", "a", "b"], "annotator": ["ann"] * 3, "label": ["cat", "dog", "owl"]}
    )

    labels = read(table)

    assert found(labels) == {("a", "ann", "dog"), ("b", "ann", "owl")}
    assert "the last one counts" in labels.warnings[0]


@pytest.mark.parametrize("nobody", [None, "", " "])
def test_a_label_of_nobody_is_left_out_and_told(nobody: str | None) -> None:
    who = ["ann", nobody]
    table = pa.table({"sample_id": ["a", "b"], "annotator": who, "label": ["cat", "dog"]})

    labels = read(table)

    assert found(labels) == {("a", "ann", "cat")}
    assert labels.warnings == ("1 label without an annotator is left out",)


@pytest.mark.parametrize(
    ("table", "annotators", "columns", "message"),
    [
        pytest.param({"sample_id": ["a"], "ann": ["zebra"]}, (), {}, "no usable label", id="class"),
        pytest.param({"sample_id": ["z"], "ann": ["cat"]}, (), {}, r"like \['z'\]", id="sample"),
        pytest.param({"photo": ["a"], "ann": ["cat"]}, (), {}, "neither columns", id="columns"),
        pytest.param(
            {"sample_id": ["a"], "ann": ["cat"]}, ("anm",), {}, "did you mean 'ann'", id="name"
        ),
        pytest.param(
            {"sample_id": ["a"], "ann": ["cat"]},
            ("ann",),
            {"sample_id": "photo"},
            "no column 'photo'",
            id="ids",
        ),
        pytest.param(
            {"sample_id": ["a"], "ann": [[1, 2]]},
            (),
            {},
            "has 2 labels at row 0.*one label in each cell",
            id="list",
        ),
        pytest.param(
            {"sample_id": ["a"], "ann": [b"x\xff"]}, (), {}, "cannot be read as text", id="type"
        ),
        pytest.param({"sample_id": [], "ann": []}, (), {}, "no row", id="empty"),
    ],
)
def test_an_error_names_what_is_wrong_with_a_table(
    table: dict[str, list[object]],
    annotators: tuple[str, ...],
    columns: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(DatasetError, match=message):
        read(pa.table(table), *annotators, **columns)


@pytest.mark.parametrize(
    ("annotators", "columns", "parameter", "problem"),
    [
        ((), {"annotator": "wrker"}, "annotator_column", "has no column 'wrker'; did you mean"),
        ((), {"annotator": "worker", "label": "lbl"}, "label_column", "has no column 'lbl'"),
        ((), {"annotator": "worker"}, "label_column", "has no column 'label'"),
        (("answer",), {"annotator": "worker"}, "annotator_column", "does not apply to columns"),
        (("answer",), {"label": "answer"}, "label_column", "does not apply to columns"),
    ],
)
def test_a_column_that_is_named_for_rows_is_not_passed_over(
    tmp_path: Path,
    annotators: tuple[str, ...],
    columns: dict[str, str],
    parameter: str,
    problem: str,
) -> None:
    path = write(tmp_path / "labels.csv", "sample_id,worker,answer\na,w,cat\nb,x,dog\n")

    with pytest.raises(DatasetError, match=problem) as caught:
        read(path, *annotators, **columns)

    assert caught.value.parameter == parameter


def test_labels_of_text_are_those_of_classes_as_they_are_written(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "sample_id,ann,bob\na,001,1E2\nb,002,100\n")

    labels = read(path, classes=("001", "002", "100", "1E2"))

    assert labels.given.classes.tolist() == [0, 3, 1, 2]
    assert labels.warnings == ()


def test_numbers_beside_missing_ones_are_whole_in_a_table_of_text(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.csv", "sample_id,ann\na,1.0\nb,\nc,-1.0\n7,0.0\n")

    labels = read(path)

    assert found(labels) == {("a", "ann", "dog"), ("7", "ann", "cat")}
    assert labels.warnings == ()


def test_numbers_that_count_from_one_are_not_taken_for_places() -> None:
    table = pa.table({"sample_id": ["a", "b", "c"], "ann": [1, 2, 3], "bob": ["cat", None, None]})

    labels = read(table)

    assert found(labels) == {("a", "bob", "cat")}
    assert labels.warnings[0].endswith(
        "are left out: 1 (1), 2 (1), 3 (1); numbers are class indices only if all are below 3"
    )


@pytest.mark.parametrize("cells", [[1, 0, -1], [[1], [0], []]])
@pytest.mark.parametrize("in_memory", [False, True])
def test_declared_names_of_numbers_are_those_of_the_labels(
    tmp_path: Path, cells: list[object], *, in_memory: bool
) -> None:
    names = {"names": ["owl", "cat"], "_type": "ClassLabel"}
    feature = {"feature": names, "_type": "List"} if isinstance(cells[0], list) else names
    info = {"info": {"features": {"ann": feature}}}
    table = pa.table({"sample_id": ["a", "b", "c"], "ann": cells})
    table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    pq.write_table(table, tmp_path / "labels.parquet")

    labels = read(table if in_memory else tmp_path / "labels.parquet")

    assert found(labels) == {("a", "ann", "cat"), ("b", "ann", "owl")}


@pytest.mark.parametrize("in_memory", [False, True])
def test_ids_are_found_in_the_paths_of_images(tmp_path: Path, *, in_memory: bool) -> None:
    images = [{"bytes": b"x", "path": each} for each in ("b", "a")]
    table = pa.table({"image": images, "ann": ["cat", "dog"]})
    pq.write_table(table, tmp_path / "labels.parquet")

    labels = read(table if in_memory else tmp_path / "labels.parquet", "ann")

    assert found(labels) == {("a", "ann", "dog"), ("b", "ann", "cat")}
