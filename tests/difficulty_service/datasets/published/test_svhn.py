"""SVHN in MATLAB's format, beside torchvision's reader of the same files."""

import pickle
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.io import savemat
from torchvision.datasets import SVHN

from difficulty_service.base.errors import DatasetError
from tests.dataset_files import dataset_of, draw_images, read_pixels


class Peer(SVHN):
    """Torchvision's reader, without the checksums of the published files."""

    split_list: ClassVar[dict[str, list[str | None]]] = {
        split: ["", f"{split}_32x32.mat", None] for split in ("train", "test", "extra")
    }


@pytest.fixture
def svhn(tmp_path: Path) -> Path:
    """Four digits in each of two files, one compressed."""
    for seed, split in enumerate(["train", "test"]):
        content = {"X": draw_images(32, 32, 3, 4, seed=seed), "y": [[1], [10], [9], [10]]}
        savemat(tmp_path / f"{split}_32x32.mat", content, do_compression=bool(seed))
    return tmp_path


@pytest.mark.parametrize("split", ["train", "test"])
def test_digits_are_read_as_by_torchvision(svhn: Path, split: str) -> None:
    peer = Peer(str(svhn), split=split)

    dataset = dataset_of(svhn, split=split, shard_size=3)

    np.testing.assert_array_equal(read_pixels(dataset), peer.data.transpose(0, 2, 3, 1))
    assert [int(dataset.class_names[label]) for label in dataset.labels] == peer.labels.tolist()
    assert list(dataset.sample_ids) == [f"{split}#{row}" for row in range(4)]


def test_a_single_file_needs_no_split(svhn: Path) -> None:
    dataset = dataset_of(svhn / "test_32x32.mat")

    assert dataset.sample_ids[0] == "test#0"
    assert dataset.labels.tolist() == [1, 0, 9, 0]
    with pytest.raises(DatasetError, match=r"holds the splits \['test', 'train'\]"):
        dataset_of(svhn)


def test_a_dataset_is_pickled_without_the_images_that_it_has_read(svhn: Path) -> None:
    dataset = dataset_of(svhn / "test_32x32.mat")
    pixels = read_pixels(dataset)

    pickled = pickle.dumps(dataset)

    assert len(pickled) < 3072
    np.testing.assert_array_equal(read_pixels(pickle.loads(pickled)), pixels)  # noqa: S301


@pytest.mark.parametrize(
    "content",
    [
        {"X": np.zeros((32, 32, 3, 4), np.uint8)},
        {"y": [[1]]},
        {"X": np.zeros((32, 32, 3, 4)), "y": [[1]] * 4},
        {"X": np.zeros((32, 32, 4), np.uint8), "y": [[1]] * 4},
        {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": [[1]] * 3},
        {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": [[1.5]] * 4},
        {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": [[11]] * 4},
    ],
)
def test_variables_that_are_not_those_of_svhn_are_an_error(
    tmp_path: Path, content: dict[str, object]
) -> None:
    savemat(tmp_path / "train_32x32.mat", content)

    with pytest.raises(DatasetError, match=r"'train_32x32.mat' is damaged"):
        dataset_of(tmp_path)


@pytest.mark.parametrize("kept", [0, 130, 5000])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_truncated_file_is_named(svhn: Path, kept: int, split: str) -> None:
    file = svhn / f"{split}_32x32.mat"
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(DatasetError, match=rf"'{split}_32x32.mat' is damaged"):
        read_pixels(dataset_of(file))
