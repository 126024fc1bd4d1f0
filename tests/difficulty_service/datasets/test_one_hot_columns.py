"""Labels in columns of 0 and 1, of which one is 1 in each row."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import Dataset
from tests.dataset_files import dataset_of
from tests.factories import png_of

NAMES = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC", "SCC", "UNK")


def write(folder: Path, header: str, rows: list[str]) -> Path:
    for number in range(len(rows)):
        (folder / f"ISIC_{number}.png").write_bytes(png_of((20 * number, 10, 200), (8, 6)))
    path = folder / "truth.csv"
    lines = [f"ISIC_{number},{row}" for number, row in enumerate(rows)]
    path.write_text("\n".join([f"image,{header}", *lines]))
    return path


def labels_of(dataset: Dataset) -> list[str]:
    return [dataset.class_names[label] for label in dataset.labels]


def one_hot(place: int, one: str = "1.0", zero: str = "0.0") -> str:
    return ",".join(one if each == place else zero for each in range(len(NAMES)))


@pytest.mark.parametrize(("one", "zero"), [("1.0", "0.0"), ("1", "0"), ("true", "false")])
def test_the_label_is_the_name_of_the_column_that_is_1(tmp_path: Path, one: str, zero: str) -> None:
    rows = [f"{40 + place},{one_hot(place % len(NAMES), one, zero)}" for place in range(12)]
    path = write(tmp_path, f"age,{','.join(NAMES)}", rows)

    dataset = dataset_of(path)

    assert labels_of(dataset) == [NAMES[place % len(NAMES)] for place in range(12)]
    assert (
        "the label in 'truth.csv' is the name of the column that is 1, of the 9 from 'MEL' to 'UNK'"
    ) in dataset.warnings


def test_one_hot_columns_of_parquet_are_labels_too(tmp_path: Path) -> None:
    table = pa.table(
        {
            "image": [png_of((9 * number, 10, 200), (8, 6)) for number in range(4)],
            "cat": [1, 0, 0, 1],
            "dog": [0, 1, 1, 0],
        }
    )
    pq.write_table(table, tmp_path / "pets.parquet")

    dataset = dataset_of(tmp_path / "pets.parquet")

    assert labels_of(dataset) == ["cat", "dog", "dog", "cat"]


def test_a_label_column_comes_before_columns_of_0_and_1(tmp_path: Path) -> None:
    path = write(tmp_path, "label,male,female", ["a,1,0", "b,0,1"])

    assert labels_of(dataset_of(path)) == ["a", "b"]


def test_columns_of_which_several_are_1_are_refused_by_all_their_names(tmp_path: Path) -> None:
    path = write(tmp_path, "age,cat,dog,cow", ["30,1,0,0", "31,1,1,0"])

    with pytest.raises(DatasetError) as caught:
        dataset_of(path)

    assert "'cat', 'dog', 'cow' hold 0 and 1, and 2 of them are 1 in row 1" in str(caught.value)
    assert "judge them by tags='cat,dog,cow'" in str(caught.value)


@pytest.mark.parametrize("rows", [["30,2", "31,3"], ["0.5,0.5", "0.1,0.9"]])
def test_other_numbers_are_not_taken_for_one_hot_columns(tmp_path: Path, rows: list[str]) -> None:
    path = write(tmp_path, "age,height", rows)

    with pytest.raises(DatasetError, match="no label column found") as caught:
        dataset_of(path)

    assert "idxmax" not in str(caught.value)
    assert "hold 0 and 1" not in str(caught.value)


@pytest.mark.parametrize("name", ["Finding Label", "Finding Label ", " Finding Label"])
def test_a_column_is_named_with_or_without_a_blank_at_an_end(tmp_path: Path, name: str) -> None:
    table = pa.table({"image": [png_of("red"), png_of("blue")], "Finding Label ": ["a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")

    dataset = dataset_of(tmp_path / "a.parquet", label_column=name)

    assert dataset.class_names == ("a", "b")
