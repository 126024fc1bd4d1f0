"""CIFAR-10 and CIFAR-100 as published, beside torchvision's readers of the same files."""

import pickle
import tarfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, CIFAR100

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.recognition import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.storage import boundary_at
from tests.dataset_files import dataset_of, draw_images, pickle_as_python_2, read_pixels

BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
TRAIN, TEST = DatasetOptions(split="train", shard_size=4), DatasetOptions(split="test")


class PeerOf10(CIFAR10):
    """Torchvision's reader, without the checksums of the published files."""

    train_list = [[name, None] for name in BATCHES]  # noqa: RUF012
    test_list = [["test_batch", None]]  # noqa: RUF012
    meta = {"filename": "batches.meta", "key": "label_names", "md5": None}  # noqa: RUF012


class PeerOf100(CIFAR100):
    """Torchvision's reader, without the checksums of the published files."""

    train_list = [["train", None]]  # noqa: RUF012
    test_list = [["test", None]]  # noqa: RUF012
    meta = {"filename": "meta", "key": "fine_label_names", "md5": None}  # noqa: RUF012


def _assert_as_in_torchvision(dataset: Dataset, peer: Any) -> None:  # noqa: ANN401
    np.testing.assert_array_equal(read_pixels(dataset), peer.data)
    assert dataset.labels.tolist() == peer.targets
    assert list(dataset.class_names) == peer.classes


@pytest.mark.parametrize("is_train", [True, False])
def test_the_python_version_of_cifar_10_is_read_as_by_torchvision(
    cifar_10: Path, *, is_train: bool
) -> None:
    with warnings.catch_warnings(action="ignore"):  # NumPy's old names in old pickles
        peer = PeerOf10(str(cifar_10.parent), train=is_train)

    dataset = open_dataset(str(cifar_10), TRAIN if is_train else TEST)

    _assert_as_in_torchvision(dataset, peer)
    assert dataset.sample_ids[2] == ("train#2" if is_train else "test#2")


@pytest.mark.parametrize("protocol", [3, 4])
def test_cifar_100_is_read_as_by_torchvision_also_if_pickled_again(
    tmp_path: Path, protocol: int
) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    names = [f"class {number}" for number in range(100)]
    contents = {
        "train": {"data": draw_images(5, 3072), "fine_labels": [3, 99, 0, 1, 1]},
        "test": {"data": draw_images(2, 3072, seed=1), "fine_labels": [5, 6]},
        "meta": {"fine_label_names": names, "coarse_label_names": ["other"]},
    }
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    peer = PeerOf100(str(tmp_path), train=True)

    dataset = open_dataset(str(folder), TRAIN)

    _assert_as_in_torchvision(dataset, peer)
    assert open_dataset(str(folder), TEST).labels.tolist() == [5, 6]


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_the_binary_version_has_the_images_and_labels_of_the_python_version(
    tmp_path: Path, label_bytes: int
) -> None:
    records = draw_images(4, label_bytes + 3072)
    records[:, 0], records[:, label_bytes - 1] = 7, [0, 2, 1, 2]
    train = [f"{name}.bin" for name in BATCHES] if label_bytes == 1 else ["train.bin"]
    for name in train:
        (tmp_path / name).write_bytes(records.tobytes())
    names = "batches.meta.txt" if label_bytes == 1 else "fine_label_names.txt"
    (tmp_path / names).write_text("cat\ndog\nemu\n\n")

    dataset = dataset_of(tmp_path)

    pixels = records[:, label_bytes:].reshape(4, 3, 32, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(read_pixels(dataset), np.tile(pixels, (len(train), 1, 1, 1)))
    assert dataset.labels.tolist() == [0, 2, 1, 2] * len(train)
    assert dataset.class_names == ("cat", "dog", "emu")


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "renamed.tar"])
def test_the_published_tar_is_read_like_the_folder_in_it(
    cifar_10: Path, tmp_path: Path, name: str
) -> None:
    with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as tar:
        tar.add(cifar_10, cifar_10.name)

    options = replace(TRAIN, boundary=boundary_at(str(tmp_path / name)))
    packed = open_dataset(str(tmp_path / name), options)

    unpacked = open_dataset(str(cifar_10), TRAIN)
    np.testing.assert_array_equal(read_pixels(packed), read_pixels(unpacked))
    assert packed.fingerprint == unpacked.fingerprint


def test_a_dataset_can_be_pickled_for_other_processes_and_holds_no_pixels(cifar_10: Path) -> None:
    dataset = open_dataset(str(cifar_10), TRAIN)

    pickled = pickle.dumps(dataset)

    assert len(pickled) < 3072
    np.testing.assert_array_equal(read_pixels(pickle.loads(pickled)), read_pixels(dataset))  # noqa: S301


def test_without_the_file_of_class_names_the_published_names_are_used(cifar_10: Path) -> None:
    (cifar_10 / "batches.meta").unlink()

    assert open_dataset(str(cifar_10), TEST).class_names[:2] == ("airplane", "automobile")


def test_one_of_several_splits_has_to_be_chosen(cifar_10: Path) -> None:
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'test'\].*split='train'"):
        dataset_of(cifar_10)
    with pytest.raises(DatasetError, match="has no split 'val'"):
        dataset_of(cifar_10, split="val")
    for name in BATCHES:
        (cifar_10 / name).unlink()
    assert dataset_of(cifar_10).sample_ids[0] == "test#0"


def test_the_only_file_of_a_split_can_be_given_itself(cifar_10: Path) -> None:
    direct = dataset_of(cifar_10 / "test_batch")

    assert direct.fingerprint == open_dataset(str(cifar_10), TEST).fingerprint
    with pytest.raises(DatasetError, match=r"one of the 5 files .* folder and split='train'"):
        dataset_of(cifar_10 / "data_batch_1")


def test_a_missing_file_is_named(cifar_10: Path) -> None:
    (cifar_10 / "data_batch_3").unlink()

    with pytest.raises(DatasetError, match="lacks the file 'data_batch_3'; fetch it again"):
        open_dataset(str(cifar_10), TRAIN)


@pytest.mark.parametrize("kept", [0, 100, 9000])
def test_a_truncated_pickle_is_named(cifar_10: Path, kept: int) -> None:
    file = cifar_10 / "data_batch_2"
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(DatasetError, match="'data_batch_2' is damaged, truncated or of another"):
        open_dataset(str(cifar_10), TRAIN)


def test_a_truncated_binary_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073 + 3000))

    with pytest.raises(DatasetError, match=r"'test_batch.bin' is .* not a multiple of the 3073"):
        dataset_of(tmp_path)


def test_a_label_without_a_class_and_labels_without_images_are_errors(cifar_10: Path) -> None:
    file, data = cifar_10 / "test_batch", draw_images(2, 3072)

    file.write_bytes(pickle_as_python_2(data, {"labels": [0, 10]}))
    with pytest.raises(
        DatasetError, match=r"'test_batch' .* image 1 has the label 10, where there"
    ):
        open_dataset(str(cifar_10), TEST)
    file.write_bytes(pickle_as_python_2(data, {"labels": [0]}))
    with pytest.raises(DatasetError, match=r"'test_batch' .* 2 images and 1 labels"):
        open_dataset(str(cifar_10), TEST)


def test_a_folder_whose_classes_are_called_train_and_test_is_not_cifar(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).mkdir()

    (tmp_path / "train" / "test").write_bytes(b"")

    assert detect_kind(str(tmp_path)) == "image-folder"
    with pytest.raises(DatasetError, match="is not a dataset that can be read"):
        detect_kind(str(tmp_path / "train" / "test"))
