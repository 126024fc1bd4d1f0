"""Files whose names say of which split they are are not merged, but where that is asked for."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.file_search import expand_braces, find_files
from tests.dataset_files import dataset_of
from tests.factories import png_of

PNG = png_of((20, 10, 200), (8, 6))
SIZES = {"train-00000-of-00002": 3, "train-00001-of-00002": 2, "validation-00000-of-00001": 4}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of the Hugging Face Hub: tables in `data`, and a text about them."""
    (tmp_path / "data").mkdir()
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".gitattributes").write_text("")
    for name, rows in SIZES.items():
        table = pa.table({"image": [{"bytes": PNG, "path": None}] * rows, "label": [0] * rows})
        pq.write_table(table, tmp_path / "data" / f"{name}.parquet")
    return tmp_path


@pytest.mark.parametrize("below", ["", "data", "data/*.parquet", "**/*.parquet"])
def test_tables_of_several_splits_are_not_merged(repository: Path, below: str) -> None:
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'val'\]; choose one"):
        dataset_of(repository / below)

    assert len(dataset_of(repository / below, split="train").labels) == 5
    assert len(dataset_of(repository / below, split="validation").labels) == 4


def test_several_splits_are_merged_where_they_are_asked_for(repository: Path) -> None:
    assert len(dataset_of(repository, split="train+validation").labels) == 9


def test_files_of_one_split_need_no_choice(repository: Path) -> None:
    for table in (repository / "data").glob("validation*"):
        table.unlink()

    assert len(dataset_of(repository).labels) == 5
    assert len(dataset_of(repository, split="train").labels) == 5


def test_tables_in_folders_of_splits_are_not_merged(repository: Path) -> None:
    for split, name in (("train", "train-00000-of-00002"), ("test", "validation-00000-of-00001")):
        (repository / "default" / split).mkdir(parents=True)
        table = repository / "data" / f"{name}.parquet"
        table.rename(repository / "default" / split / "0000.parquet")

    assert len(dataset_of(repository / "default", split="train").labels) == 3
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'test'\]"):
        dataset_of(repository / "default")
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'test'\]"):
        dataset_of(repository / "default" / "**" / "*.parquet")


def test_a_column_of_splits_is_read_in_a_file_that_is_called_as_one(tmp_path: Path) -> None:
    path = tmp_path / "train_and_more.csv"
    path.write_text("path,label,split\n1.png,a,train\n2.png,b,val\n3.png,a,train\n")

    assert len(dataset_of(path, split="train").labels) == 2
    assert len(dataset_of(path, split="val").labels) == 1


@pytest.mark.parametrize("asked", ["val", "validation", "Val"])
def test_a_split_in_a_column_is_found_by_any_word_for_it(tmp_path: Path, asked: str) -> None:
    path = tmp_path / "photos.csv"
    path.write_text("path,label,split\n1.png,a,Train\n2.png,b,validation\n3.png,a,Train\n")

    assert dataset_of(path, split=asked).sample_ids == ["2.png"]


def write_splits(path: Path, splits: list[str]) -> Path:
    """A table with a column of splits, and its images."""
    rows = [f"{row}.png,cat,{split}" for row, split in enumerate(splits)]
    path.write_text("\n".join(["path,label,split", *rows]))
    for row in range(len(splits)):
        path.with_name(f"{row}.png").touch()
    return path


def test_rows_of_several_splits_are_read_together_with_a_warning(tmp_path: Path) -> None:
    path = write_splits(tmp_path / "photos.csv", ["train", "train", "val"])

    whole = dataset_of(path)

    assert len(whole.sample_ids) == 3
    assert [text for text in whole.warnings if "'train', 'val' in column 'split'" in text]
    assert not dataset_of(path, split="val").warnings


@pytest.mark.parametrize("values", [["train"] * 3, ["left", "right", "left"]])
def test_a_column_split_of_other_values_or_one_has_no_warning(
    tmp_path: Path, values: list[str]
) -> None:
    assert not dataset_of(write_splits(tmp_path / "photos.csv", values)).warnings


def test_files_of_a_split_beside_others_are_asked_about(repository: Path) -> None:
    for table in (repository / "data").glob("validation*"):
        table.rename(table.with_name("more.parquet"))

    with pytest.raises(DatasetError, match=r"files of the split 'train'.*others.*'more.parquet'"):
        dataset_of(repository / "data")


def _write_tar(path: Path, keys: range) -> None:
    with tarfile.open(path, "w") as tar:
        for key in keys:
            (path.parent / f"{key}.png").write_bytes(PNG)
            (path.parent / f"{key}.cls").write_text("1")
            for kind in ("png", "cls"):
                tar.add(path.parent / f"{key}.{kind}", f"{key}.{kind}")
                (path.parent / f"{key}.{kind}").unlink()


def test_shards_of_several_splits_are_not_merged(tmp_path: Path) -> None:
    for split, keys in (("train", range(3)), ("val", range(3, 5))):
        _write_tar(tmp_path / f"{split}-000.tar", keys)

    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'val'\]"):
        dataset_of(tmp_path)
    assert dataset_of(tmp_path, split="val").sample_ids == ["3", "4"]


def test_braces_name_a_range_of_shards(tmp_path: Path) -> None:
    for number in range(3):
        _write_tar(tmp_path / f"photos-{number:04}.tar", range(2 * number, 2 * number + 2))

    assert len(dataset_of(tmp_path / "photos-{0000..0001}.tar").labels) == 4
    assert len(dataset_of(tmp_path / "photos-{0000,0002}.tar").labels) == 4
    with pytest.raises(DatasetError, match=r"photos-0003.tar' does not exist"):
        dataset_of(tmp_path / "photos-{0002..0003}.tar")


def test_braces_are_expanded_in_order_and_by_the_number_of_digits() -> None:
    assert expand_braces("a{08..11}{x,y}") == [
        f"a{number:02}{letter}" for number in range(8, 12) for letter in "xy"
    ]


@pytest.mark.parametrize("location", ["{0..99999}", "{0..99}{0..99}{0..99}"])
def test_braces_stand_for_a_limited_number_of_files(location: str) -> None:
    with pytest.raises(DatasetError, match="more than 10,000 files"):
        expand_braces(location)


def test_a_file_may_have_braces_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a{1,2}.csv").write_text("path,label\n1.png,a\n")

    assert [file.place.name for file in find_files(str(tmp_path / "a{1,2}.csv"))] == ["a{1,2}.csv"]


PutObjects = Callable[[dict[str, bytes]], str]


def test_braces_and_splits_hold_on_remote_storage(put_objects: PutObjects) -> None:
    rows = b"path,label\n1.png,a\n"
    bucket = put_objects({f"{name}-{n}.csv": rows for name in ("train", "test") for n in range(2)})

    assert len(find_files(f"{bucket}/train-{{0,1}}.csv")) == 2
    assert dataset_of(bucket, split="test").sample_ids == ["test-0.csv#0", "test-1.csv#0"]


def test_braces_may_stand_for_a_single_file(repository: Path) -> None:
    dataset = dataset_of(repository / "data" / "validation-{00000..00000}-of-00001.parquet")

    assert len(dataset.labels) == 4
