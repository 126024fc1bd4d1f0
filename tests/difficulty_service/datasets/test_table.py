"""Parquet, CSV and JSON Lines: columns, labels, ids, splits and streamed images."""

import base64
import errno
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets import table_files
from tests.dataset_files import IMAGES, contents_of, dataset_of


def _write(path: Path, columns: dict[str, Any], **options: Any) -> str:  # noqa: ANN401
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def test_a_parquet_file_of_bytes_gives_its_images_and_integer_labels(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", {"image": IMAGES[:3], "label": [2, 0, 2]})

    dataset = dataset_of(path)

    assert dataset.class_names == ("0", "2")
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.labels.dtype == np.int32
    assert dataset.sample_ids == ["t.parquet#0", "t.parquet#1", "t.parquet#2"]
    assert contents_of(dataset) == IMAGES[:3]


@pytest.mark.parametrize("shard_size", [1, 2, 5, 7, 12, 100])
def test_all_shards_together_are_the_whole_dataset(tmp_path: Path, shard_size: int) -> None:
    _write(tmp_path / "a.parquet", {"image": IMAGES[:7], "y": [0] * 7}, row_group_size=3)
    _write(tmp_path / "b.parquet", {"image": IMAGES[7:], "y": [1] * 5}, row_group_size=2)

    dataset = dataset_of(tmp_path / "*.parquet", shard_size=shard_size)

    assert contents_of(dataset) == IMAGES
    assert dataset.sample_ids[6:8] == ["a.parquet#6", "b.parquet#0"]


def test_a_shard_reads_only_the_row_groups_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    _write(path, {"image": IMAGES, "label": [0] * 12}, row_group_size=4, compression="none")
    dataset = dataset_of(path, shard_size=4)
    first_group = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = first_group.dictionary_page_offset or first_group.data_page_offset
    damaged = bytearray(path.read_bytes())
    damaged[start : start + 16] = b"\xff" * 16
    path.write_bytes(damaged)

    samples = list(dataset.read_shard(1))

    with samples[0].open() as file:
        assert file.read() == IMAGES[4]
    with pytest.raises(DatasetError, match="damaged"):
        list(dataset.read_shard(0))


def test_images_may_be_structs_of_bytes_and_path(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(IMAGES[1])
    cells = [{"bytes": IMAGES[0], "path": None}, {"bytes": None, "path": "x.png"}]
    path = _write(tmp_path / "t.parquet", {"image": cells, "label": ["b", "a"]})

    dataset = dataset_of(path)

    assert dataset.class_names == ("a", "b")
    assert dataset.labels.tolist() == [1, 0]
    assert contents_of(dataset) == IMAGES[:2]


def test_csv_paths_are_relative_to_the_table_absolute_or_uris(class_folders: Path) -> None:
    absolute, uri = class_folders / "cat/2.png", (class_folders / "cat/old/1.png").as_uri()
    lines = ["file_name,category", "dog/b.png,dog", f"{absolute},cat", f"{uri},cat"]
    (class_folders / "list.csv").write_text("\n".join(lines))

    dataset = dataset_of(class_folders / "list.csv")

    assert dataset.class_names == ("cat", "dog")
    assert contents_of(dataset) == [IMAGES[0], IMAGES[2], IMAGES[3]]


def test_json_lines_hold_paths_or_base64(class_folders: Path) -> None:
    encoded = base64.b64encode(IMAGES[5]).decode()
    rows = [
        {"image": {"bytes": encoded, "path": None}, "label": 1},
        {"image": {"bytes": None, "path": "dog/b.png"}, "label": 0},
    ]
    (class_folders / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    dataset = dataset_of(class_folders / "t.jsonl")

    assert contents_of(dataset) == [IMAGES[5], IMAGES[0]]
    assert dataset.labels.tolist() == [1, 0]


def test_a_missing_file_and_a_null_image_are_errors_of_that_image(
    tmp_path: Path,
) -> None:
    cells = pa.array(["no.png", None])
    path = _write(tmp_path / "t.parquet", {"path": cells, "label": [0, 0]})

    missing, null = dataset_of(path).read_shard(0)

    with pytest.raises(ImageError, match="no such file"):
        missing.open()
    with pytest.raises(ImageError, match="the cell is empty"):
        null.open()


@pytest.mark.parametrize("row_group_size", [2, 100])
def test_rows_without_a_label_are_skipped_and_the_images_of_the_others_stay(
    tmp_path: Path, row_group_size: int
) -> None:
    labels = pa.array([None, 0, 1, None, 0, None])
    columns = {"image": IMAGES[:6], "label": labels}
    path = _write(tmp_path / "t.parquet", columns, row_group_size=row_group_size)

    dataset = dataset_of(path, shard_size=2)

    assert contents_of(dataset) == [IMAGES[1], IMAGES[2], IMAGES[4]]
    assert [name for name, _ in dataset.skipped] == [f"t.parquet#{row}" for row in (0, 3, 5)]
    assert dataset.warnings == (
        "3 entries are skipped (the label is missing): 't.parquet#0', 't.parquet#3', 't.parquet#5'",
    )


def test_integer_labels_are_named_by_a_column_of_names(tmp_path: Path) -> None:
    columns = {"image": IMAGES[:2], "label": [3, 1], "label_name": ["cat", "dog"]}

    dataset = dataset_of(_write(tmp_path / "t.parquet", columns))

    assert dataset.class_names == ("dog", "cat")
    assert dataset.labels.tolist() == [1, 0]


def test_the_names_of_the_default_label_column_do_not_apply_to_another(tmp_path: Path) -> None:
    columns = {
        "image": IMAGES[:2],
        "label": [0, 1],
        "label_name": ["cat", "dog"],
        "noisy": [1, 1],
        "coarse": [0, 1],
        "coarse_name": ["pet", "farm"],
    }
    path = _write(tmp_path / "t.parquet", columns)

    noisy = dataset_of(path, label_column="noisy")
    coarse = dataset_of(path, label_column="coarse")

    assert noisy.class_names == ("1",)
    assert coarse.class_names == ("pet", "farm")


def test_bytes_are_preferred_to_paths_in_any_column_order(tmp_path: Path) -> None:
    columns = {"image": ["a.png"], "webp": [IMAGES[0]], "label": [0]}

    dataset = dataset_of(_write(tmp_path / "t.parquet", columns))

    assert contents_of(dataset) == [IMAGES[0]]


def test_a_missing_column_is_refused_with_the_columns_and_the_parameter(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", {"photo": [b"x"], "label": [0]})

    with pytest.raises(DatasetError, match=r"\['photo', 'label'\]; name it as image_column"):
        dataset_of(path)
    with pytest.raises(DatasetError, match=r"no column 'kind' .*as label_column"):
        dataset_of(path, image_column="photo", label_column="kind")


def test_files_need_the_same_columns(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet", {"image": [b"x"], "label": [0]})
    _write(tmp_path / "b.parquet", {"image": [b"x"], "klass": [0]})

    with pytest.raises(DatasetError, match=r"no column 'label' in 'b\.parquet'"):
        dataset_of(tmp_path)


def test_files_may_store_labels_in_other_widths_and_encodings(tmp_path: Path) -> None:
    first = pa.array([1, 0], pa.int8())
    second = pa.array([2], pa.int64()).dictionary_encode()
    _write(tmp_path / "a.parquet", {"image": [b"x", b"y"], "label": first})
    _write(tmp_path / "b.parquet", {"image": [b"z"], "label": second})

    dataset = dataset_of(tmp_path)

    assert dataset.labels.tolist() == [1, 0, 2]


def test_an_empty_label_of_a_csv_is_missing_but_na_is_a_class(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label\na.png,NA\nb.png,\nc.png,cat\n")

    dataset = dataset_of(tmp_path / "t.csv")

    assert dataset.class_names == ("NA", "cat")
    assert dataset.sample_ids == ["a.png", "c.png"]
    assert list(dataset.skipped) == [("b.png", "the label is missing")]


def test_a_split_keeps_its_rows_and_their_row_numbers(tmp_path: Path) -> None:
    columns = {"image": IMAGES[:4], "label": [0, 1, 0, 1], "split": ["train", "test"] * 2}
    path = _write(tmp_path / "t.parquet", columns)

    dataset = dataset_of(path, split="test")

    assert dataset.sample_ids == ["t.parquet#1", "t.parquet#3"]
    assert contents_of(dataset) == [IMAGES[1], IMAGES[3]]
    with pytest.raises(DatasetError, match=r"split 'val'; there are \['test', 'train'\]"):
        dataset_of(path, split="val")


def test_a_split_without_such_a_column_is_an_error(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", {"image": [b"x"], "label": [0]})

    with pytest.raises(DatasetError, match=r"no column 'split' .*\['image', 'label'\]"):
        dataset_of(path, split="train")


def test_names_in_ids_are_relative_to_the_folder_the_files_share(tmp_path: Path) -> None:
    _write(tmp_path / "x/a/t.parquet", {"image": [b"x"], "label": [0]})
    _write(tmp_path / "x/b/t.parquet", {"image": [b"x"], "label": [0]})

    dataset = dataset_of(tmp_path / "x/**/*.parquet")

    assert dataset.sample_ids == ["a/t.parquet#0", "b/t.parquet#0"]


def test_images_as_lists_of_numbers_are_refused_by_their_type(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.parquet", {"image": [[1, 2], [3, 4]], "label": [0, 1]})

    with pytest.raises(DatasetError, match=r"column 'image' .* is of type list.*arrays in Python"):
        dataset_of(path)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl"])
def test_a_damaged_table_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'{"a": \x00\xff')

    with pytest.raises(DatasetError, match=name):
        dataset_of(tmp_path / name)


def test_a_damaged_page_is_no_failure_of_the_storage_which_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    columns = {"image": IMAGES, "label": [0] * 12}
    _write(path, columns, compression="snappy", use_dictionary=False)
    dataset = dataset_of(path)
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    content[middle : middle + 64] = b"\xff" * 64
    path.write_bytes(content)

    with pytest.raises(DatasetError, match="Corrupt snappy") as damaged:
        list(dataset.read_shard(0))
    monkeypatch.setattr(table_files, "open_arrow_file", failing_storage)
    with pytest.raises(DatasetError, match="Input/output error") as failed:
        list(dataset.read_shard(0))

    assert damaged.value.__cause__ is None
    assert isinstance(failed.value.__cause__, OSError)


def failing_storage(_place: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_table_can_be_pickled_to_another_process(tmp_path: Path) -> None:
    _write(tmp_path / "t.parquet", {"image": IMAGES[:2], "label": [0, 1]})
    dataset = dataset_of(tmp_path)

    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own bytes

    assert contents_of(copy) == IMAGES[:2]


def test_the_training_set_of_cifar10_opens_by_a_glob(shared: Path) -> None:
    pattern = shared / "data" / "cifar10_train_*.parquet"

    dataset = dataset_of(pattern)

    assert len(dataset.sample_ids) == 50_000
    assert np.unique(dataset.labels).tolist() == list(range(10))
    assert dataset.class_names[0] == "airplane"
    assert dataset.class_names[9] == "truck"
    assert dataset.sample_ids[0].endswith(".png")
    assert len(set(dataset.sample_ids)) == 50_000


def test_labels_in_views_of_text_are_read(tmp_path: Path) -> None:
    labels = pa.array(["cat", "dog", None], pa.string_view())
    path = _write(tmp_path / "t.parquet", {"image": IMAGES[:3], "label": labels})

    dataset = dataset_of(path)

    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("sep=;\npath;label\n1.png;cat\n", "begins with the line 'sep=;'.*remove that line"),
        ("about cats\npath,label\n1.png,cat\n", "names of the columns into the first line"),
        ("path,label\n1.png,cat,\n2.png,cat,\n", "as many cells into each other line"),
    ],
)
def test_a_table_of_uneven_lines_says_what_to_do(tmp_path: Path, text: str, remedy: str) -> None:
    (tmp_path / "t.csv").write_text(text)

    with pytest.raises(DatasetError, match=remedy):
        dataset_of(tmp_path / "t.csv")
