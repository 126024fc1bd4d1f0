"""MNIST and datasets in its format, beside torchvision's reader of the same files."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import MNIST

from difficulty_service.base.errors import DatasetError
from tests.dataset_files import Images, dataset_of, draw_images, read_pixels

SPLITS = {"train": "train", "test": "t10k"}


def _idx(values: Images) -> bytes:
    lengths = struct.pack(f">{values.ndim}I", *values.shape)
    return bytes([0, 0, 8, values.ndim]) + lengths + values.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Five digits of 7 x 5 pixels in each split, in the folders of torchvision."""
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    labels = np.array([9, 0, 4, 4, 1], np.uint8)
    for seed, prefix in enumerate(SPLITS.values()):
        images = draw_images(5, 7, 5, seed=seed)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(_idx(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(_idx(labels))
    return folder


def _compress(folder: Path) -> None:
    for file in folder.iterdir():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_digits_are_read_as_by_torchvision(mnist: Path, split: str, *, is_compressed: bool) -> None:
    peer = MNIST(str(mnist.parent.parent), train=split == "train")
    if is_compressed:
        _compress(mnist)

    dataset = dataset_of(mnist, split=split, shard_size=2)

    expected = np.repeat(peer.data.numpy()[..., None], 3, axis=3)
    np.testing.assert_array_equal(read_pixels(dataset), expected)
    assert dataset.labels.tolist() == peer.targets.tolist()
    assert dataset.class_names == tuple("0123456789")
    assert dataset.sample_ids[4] == f"{split}#4"


def test_a_single_file_finds_its_labels(mnist: Path) -> None:
    dataset = dataset_of(mnist / "t10k-images-idx3-ubyte")

    assert (dataset.sample_ids[0], dataset.labels[0]) == ("test#0", 9)


def test_names_with_a_dot_are_read_too(mnist: Path) -> None:
    for file in list(mnist.iterdir()):
        file.rename(mnist / file.name.replace("-idx", ".idx"))

    assert len(dataset_of(mnist, split="test").labels) == 5


def test_a_file_beside_its_compressed_form_is_read_without_decompression(mnist: Path) -> None:
    for file in list(mnist.iterdir()):
        file.with_name(f"{file.name}.gz").write_bytes(b"not gzip")

    assert len(dataset_of(mnist, split="train").labels) == 5


def test_images_without_their_labels_say_what_is_missing(mnist: Path) -> None:
    (mnist / "train-labels-idx1-ubyte").unlink()

    with pytest.raises(DatasetError, match=r"put 'train-labels-idx1-ubyte' or .*gz' into the same"):
        dataset_of(mnist, split="train")


@pytest.mark.parametrize("kept", [0, 10, 16, 60, -1])
@pytest.mark.parametrize("kind", ["images-idx3", "labels-idx1"])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_truncated_file_is_named(
    mnist: Path, kept: int, kind: str, *, is_compressed: bool
) -> None:
    if is_compressed:
        _compress(mnist)
    file = next(mnist.glob(f"train-{kind}*"))
    kept = min(kept, file.stat().st_size - 1)
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(DatasetError, match=f"'{file.name}' is damaged, truncated"):
        dataset_of(mnist, split="train")


def test_other_numbers_of_labels_and_other_types_are_an_error(mnist: Path) -> None:
    labels = mnist / "train-labels-idx1-ubyte"

    labels.write_bytes(_idx(np.zeros(4, np.uint8)))
    with pytest.raises(DatasetError, match=r"'train-labels-idx1-ubyte' .* 4 labels for 5 images"):
        dataset_of(mnist, split="train")
    labels.write_bytes(_idx(np.zeros((5, 1), np.uint8)))
    with pytest.raises(DatasetError, match=r"'train-labels-idx1-ubyte' .* it begins with"):
        dataset_of(mnist, split="train")
