"""Features that other programs saved are read with their labels, without running their code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.features.array_columns import classes_of_names
from difficulty_service.features.array_files import is_array_file, read_array_file

LABELS = ["cat", "dog"] * 3


FEATURES = np.arange(18, dtype=np.float32).reshape(6, 3)


def write_npz(folder: Path, x: NDArray[np.float32]) -> Path:
    np.savez(folder / "a.npz", features=x, labels=LABELS, ids=[f"id{row}" for row in range(6)])
    return folder / "a.npz"


def write_short_names(folder: Path, x: NDArray[np.float32]) -> Path:
    np.savez_compressed(folder / "a.npz", X=x, y=np.array(LABELS))
    return folder / "a.npz"


def write_npy(folder: Path, x: NDArray[np.float32]) -> Path:
    np.save(folder / "features.npy", x)
    np.save(folder / "labels.npy", LABELS)
    return folder / "features.npy"


def write_lists(folder: Path, x: NDArray[np.float32]) -> Path:
    pq.write_table(pa.table({"embedding": x.tolist(), "label": LABELS}), folder / "a.parquet")
    return folder / "a.parquet"


def write_fixed_lists(folder: Path, x: NDArray[np.float32]) -> Path:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)
    table = pa.table({"anything": vectors, "class": pa.array(LABELS).dictionary_encode()})
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize(
    "write", [write_npz, write_short_names, write_npy, write_lists, write_fixed_lists]
)
def test_features_and_labels_are_read(write: Callable[[Path, Any], Path], tmp_path: Path) -> None:
    path = write(tmp_path, FEATURES)

    source = read_array_file(path)

    assert is_array_file(path)
    assert source.open_shard(0).features().tolist() == FEATURES.tolist()
    assert source.class_names == ("cat", "dog")
    assert source.labels.tolist() == [0, 1] * 3
    assert source.description.dataset == str(path)


def test_an_array_of_images_holds_no_features(tmp_path: Path) -> None:
    np.save(tmp_path / "fog.npy", np.zeros((5, 32, 32, 3), np.uint8))

    assert not is_array_file(tmp_path / "fog.npy")


def test_ids_in_the_file_are_those_of_the_samples(tmp_path: Path) -> None:
    source = read_array_file(write_npz(tmp_path, FEATURES))

    assert source.sample_ids.to_pylist() == [f"id{row}" for row in range(6)]


@pytest.mark.parametrize("name", ["other.npy", "other.txt"])
def test_labels_from_another_file_take_precedence(name: str, tmp_path: Path) -> None:
    labels = tmp_path / name
    if labels.suffix == ".npy":
        np.save(labels, [7, 7, 7, 9, 9, 9])
    else:
        labels.write_text("7\n7\n7\n9\n9\n9\n")

    source = read_array_file(write_npy(tmp_path, FEATURES), labels)

    assert source.class_names == ("7", "9")


def test_an_empty_line_is_a_sample_without_a_label(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\n\na\nb\nb\nb\n")

    source = read_array_file(write_npy(tmp_path, FEATURES), tmp_path / "labels.txt")

    assert source.sample_ids.to_pylist() == ["0", "2", "3", "4", "5"]


def test_missing_labels_are_named_with_the_remedy(tmp_path: Path) -> None:
    np.save(tmp_path / "features.npy", FEATURES)

    with pytest.raises(
        DatasetError, match=r"features.npy holds no labels; .* their file as labels"
    ):
        read_array_file(tmp_path / "features.npy")


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.array([{}], dtype=object), allow_pickle=True)

    with pytest.raises(DatasetError, match="allow_pickle=False"):
        read_array_file(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")

    with pytest.raises(DatasetError, match=f"{name} cannot be read"):
        read_array_file(tmp_path / name)


def test_an_archive_without_features_lists_what_it_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", weights=[1.0])

    with pytest.raises(DatasetError, match=r"\['weights'\]"):
        read_array_file(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "table",
    [
        {"image": [b"png"], "label": [0], "box": [[0.0, 1.0]]},
        {"path": ["a.png"], "label": [0], "box": [[0.0, 1.0]]},
        {"label": [0]},
    ],
)
def test_a_table_of_images_is_no_file_of_features(table: dict[str, Any], tmp_path: Path) -> None:
    pq.write_table(pa.table(table), tmp_path / "a.parquet")

    assert not is_array_file(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "labels.npy", "labels.txt"])
def test_features_that_do_not_fit_their_labels_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "a.npz":
        np.savez(path, features=np.ones((3, 2)), labels=np.arange(2))
    else:
        np.save(tmp_path / "a.npy", np.ones((3, 2)))
        np.save(tmp_path / "labels.npy", np.arange(2))
        (tmp_path / "labels.txt").write_text("a\nb\n")

    with pytest.raises(DatasetError, match=f"a.np.*{path.name if path.stem == 'labels' else ''}"):
        read_array_file(
            tmp_path / ("a.npz" if name == "a.npz" else "a.npy"),
            path if path.stem == "labels" else None,
        )


def test_labels_of_sixteen_bits_are_classes(tmp_path: Path) -> None:
    labels = np.array([0, 1, np.nan], np.float16)
    np.savez(tmp_path / "a.npz", features=np.ones((3, 2)), labels=labels)

    read = read_array_file(tmp_path / "a.npz")

    assert read.class_names == ("0", "1")
    assert read.labels.tolist() == [0, 1]


@pytest.mark.parametrize("write", ["npz", "parquet", "txt"])
def test_negative_numbers_are_rows_without_a_label_in_every_file(
    write: str, tmp_path: Path
) -> None:
    labels, beside = [3, -1, 5000, 3, -1, 5000], None
    path = tmp_path / "a.npz"
    if write == "npz":
        np.savez(path, features=FEATURES, labels=labels)
    elif write == "parquet":
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"features": FEATURES.tolist(), "label": labels}), path)
    else:
        np.savez(path, features=FEATURES)
        beside = tmp_path / "labels.txt"
        beside.write_text("\n".join(map(str, labels)))

    source = read_array_file(path, beside)

    assert source.class_names == ("3", "5000")
    assert source.sample_ids.to_pylist() == ["0", "2", "3", "5"]
    assert source.warnings == ("rows left out because they have no label: 2 of 6",)


def test_a_text_file_of_labels_is_read_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\ufeff007\n7\n1E2\n007\n7\n100\n", "utf-8")

    source = read_array_file(write_npy(tmp_path, FEATURES), tmp_path / "labels.txt")

    assert source.class_names == ("007", "100", "1E2", "7")
    assert source.labels.tolist() == [0, 3, 2, 0, 3, 1]


def test_names_that_a_schema_or_a_column_gives_are_those_of_the_classes(tmp_path: Path) -> None:
    table = pa.table({"features": FEATURES.tolist(), "label": [1, 0, 2, 1, 0, -1]})
    declared = {"info": {"features": {"label": {"names": ["dog", "cat", "cow"]}}}}
    metadata = {"huggingface": json.dumps(declared)}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "declared.parquet")
    names = pa.array(["cat", "dog", "cow", "cat", "dog", None])
    pq.write_table(table.append_column("label_name", names), tmp_path / "named.parquet")

    one = read_array_file(tmp_path / "declared.parquet")
    other = read_array_file(tmp_path / "named.parquet")

    assert one.class_names == other.class_names == ("dog", "cat", "cow")
    assert one.labels.tolist() == other.labels.tolist() == [1, 0, 2, 1, 0]


def test_vectors_and_labels_that_are_not_read_are_told(tmp_path: Path) -> None:
    columns = {"clip": FEATURES.tolist(), "features": FEATURES.tolist(), "label": LABELS}
    pq.write_table(pa.table({**columns, "noisy_label": LABELS}), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", X=FEATURES, embeddings=FEATURES, y=LABELS)

    table = read_array_file(tmp_path / "a.parquet")
    arrays = read_array_file(tmp_path / "a.npz")

    assert table.warnings == (
        "features are read from 'features'; 'clip' holds vectors too",
        "labels are read from 'label'; 'noisy_label' looks like labels too",
    )
    assert arrays.warnings == ("features are read from 'X'; 'embeddings' holds vectors too",)


def test_lists_of_labels_are_no_features(tmp_path: Path) -> None:
    one_hot = np.eye(2, dtype=np.int64)[[0, 1] * 3].tolist()
    table = pa.table({"label": one_hot, "clip": FEATURES.tolist()})
    pq.write_table(table, tmp_path / "a.parquet")

    source = read_array_file(tmp_path / "a.parquet")

    assert source.open_shard(0).features().tolist() == FEATURES.tolist()
    assert source.labels.tolist() == [0, 1] * 3


@pytest.mark.parametrize(
    "labels", [np.array(LABELS, "S3"), np.eye(2, dtype=np.int64)[[0, 1] * 3]], ids=["bytes", "one"]
)
def test_arrays_of_bytes_and_one_hot_arrays_are_labels(
    labels: NDArray[Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", features=FEATURES, labels=labels)

    source = read_array_file(tmp_path / "a.npz")

    assert source.labels.tolist() == [0, 1] * 3
    assert source.warnings == ()


def test_names_of_classes_are_taken_as_they_are() -> None:
    names = pa.chunked_array([["-1", "1.0"], [None, "007", "1.0"]])

    classes = classes_of_names(names)

    assert classes.names == ("-1", "007", "1.0")
    assert classes.indices.tolist() == [0, 2, -1, 1, 2]
