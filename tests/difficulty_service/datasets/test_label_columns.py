"""The label column of tables, Hugging Face datasets and WebDataset tars, and its class names."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import DatasetError
from tests.dataset_files import dataset_of

Write = Callable[..., str]


def _table(folder: Path, **labels: list[Any]) -> str:
    path = folder / "t.parquet"
    pq.write_table(pa.table({"image": [b"x", b"y"], **labels}), path)
    return str(path)


def _saved(folder: Path, **labels: list[int]) -> str:
    hub = pytest.importorskip("datasets", reason="the package `datasets` is optional")
    hub.disable_progress_bars()
    hub.Dataset.from_dict({"image": [b"x", b"y"], **labels}).save_to_disk(folder)
    return str(folder)


def _tar(folder: Path, **labels: list[int]) -> str:
    path = folder / "s.tar"
    with tarfile.open(path, "w") as tar:
        for row in range(2):
            text = json.dumps({name: values[row] for name, values in labels.items()})
            for extension, data in (("jpg", b"x"), ("json", text.encode())):
                header = tarfile.TarInfo(f"{row}.{extension}")
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))
    return str(path)


KINDS = pytest.mark.parametrize("write", [_table, _saved, _tar])


@KINDS
def test_a_usual_name_is_used_and_the_others_are_named(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, coarse_label=[0, 0], noisy_label=[1, 1], fine_label=[1, 0])

    dataset = dataset_of(path)

    assert dataset.labels.tolist() == [1, 0]
    assert dataset.warnings == (
        "labels are read from 'fine_label'; 'coarse_label', 'noisy_label' look like labels too",
    )


def test_the_labels_before_a_cleaning_are_no_others_of_its_list(tmp_path: Path) -> None:
    lists = {"label": ["cat", "dog"], "original_label": ["dog", "dog"]}
    cleaned = _table(tmp_path, sample_id=["a", "b"], **lists, mark=["relabel", ""])

    assert dataset_of(cleaned).warnings == ()
    (note,) = dataset_of(_table(tmp_path, **lists)).warnings
    assert "'original_label' looks like labels too" in note


@KINDS
def test_a_chosen_column_is_used_without_a_warning(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, label=[0, 0], noisy_label=[1, 0])

    dataset = dataset_of(path, label_column="noisy_label")

    assert dataset.labels.tolist() == [1, 0]
    assert dataset.warnings == ()


@KINDS
def test_the_only_column_that_looks_like_labels_is_used(tmp_path: Path, write: Write) -> None:
    dataset = dataset_of(write(tmp_path, true_label=[1, 0]))

    assert dataset.labels.tolist() == [1, 0]
    assert dataset.warnings == ()


@KINDS
def test_several_columns_without_a_usual_name_are_listed(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, clean_label=[0, 0], noisy_label=[1, 0])

    with pytest.raises(
        DatasetError, match=r"'clean_label', 'noisy_label'; name one of them as label_column"
    ):
        dataset_of(path)


def test_a_column_of_vectors_is_not_mistaken_for_labels(tmp_path: Path) -> None:
    path = _table(tmp_path, label=[1, 0], soft_label=[[0.5, 0.5], [1.0, 0.0]])

    assert dataset_of(path).warnings == ()


def test_a_parquet_file_of_the_package_datasets_names_its_classes(tmp_path: Path) -> None:
    hub = pytest.importorskip("datasets", reason="the package `datasets` is optional")
    hub.disable_progress_bars()
    features = hub.Features(
        {
            "image": hub.Value("binary"),
            "fine_label": hub.ClassLabel(names=["tabby", "husky", "goldfish"]),
            "coarse_label": hub.ClassLabel(names=["pet", "fish"]),
        }
    )
    columns = {"image": [b"x", b"y"], "fine_label": [1, 0], "coarse_label": [0, 0]}
    path = str(tmp_path / "t.parquet")
    hub.Dataset.from_dict(columns, features=features).to_parquet(path)

    fine = dataset_of(path)
    coarse = dataset_of(path, label_column="coarse_label")

    assert fine.class_names == ("tabby", "husky", "goldfish")
    assert fine.labels.tolist() == [1, 0]
    assert coarse.class_names == ("pet", "fish")


@pytest.mark.parametrize(
    "metadata", [b"{", b"[]", b'{"info": null}', b'{"info": {"features": {}}}']
)
def test_other_metadata_of_that_name_leaves_the_numbers(tmp_path: Path, metadata: bytes) -> None:
    table = pa.table({"image": [b"x", b"y"], "label": [1, 0]})
    path = tmp_path / "t.parquet"
    pq.write_table(table.replace_schema_metadata({b"huggingface": metadata}), path)

    assert dataset_of(path).class_names == ("0", "1")
