"""CIFAR-10-C: one NumPy file per corruption, with five severities."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from tests.dataset_files import dataset_of, draw_images, read_pixels


@pytest.fixture
def cifar_c(tmp_path: Path) -> Path:
    """Two corruptions of three images."""
    np.save(tmp_path / "labels.npy", np.tile([3, 0, 9], 5))
    for seed, name in enumerate(["fog", "snow"]):
        np.save(tmp_path / f"{name}.npy", draw_images(15, 32, 32, 3, seed=seed))
    return tmp_path


def test_the_file_of_a_corruption_has_all_severities(cifar_c: Path) -> None:
    dataset = dataset_of(cifar_c / "fog.npy", shard_size=4)

    np.testing.assert_array_equal(read_pixels(dataset), np.load(cifar_c / "fog.npy"))
    assert dataset.labels.tolist() == [3, 0, 9] * 5
    assert dataset.class_names[9] == "truck"
    assert list(dataset.sample_ids[:4]) == ["fog/1#0", "fog/1#1", "fog/1#2", "fog/2#0"]


@pytest.mark.parametrize(("location", "split"), [("snow.npy", "4"), ("", "snow/4")])
def test_one_severity_can_be_chosen(cifar_c: Path, location: str, split: str) -> None:
    dataset = dataset_of(cifar_c / location, split=split)

    np.testing.assert_array_equal(read_pixels(dataset), np.load(cifar_c / "snow.npy")[9:12])
    assert list(dataset.sample_ids) == ["snow/4#0", "snow/4#1", "snow/4#2"]
    assert dataset.labels.tolist() == [3, 0, 9]


def test_the_split_chooses_the_corruption_in_a_folder(cifar_c: Path) -> None:
    assert dataset_of(cifar_c, split="fog").sample_ids[14] == "fog/5#2"
    with pytest.raises(DatasetError, match=r"holds the splits \['fog', 'snow'\]"):
        dataset_of(cifar_c)
    with pytest.raises(DatasetError, match="has no split 'rain'"):
        dataset_of(cifar_c, split="rain")
    with pytest.raises(DatasetError, match="has no split '6'"):
        dataset_of(cifar_c, split="fog/6")


def test_labels_above_nine_are_those_of_cifar_100(cifar_c: Path) -> None:
    np.save(cifar_c / "labels.npy", np.tile([3, 0, 10], 5).astype(np.uint8))

    dataset = dataset_of(cifar_c / "fog.npy")

    assert (len(dataset.class_names), dataset.class_names[10]) == (100, "bowl")


def test_a_corruption_without_labels_is_an_error(cifar_c: Path) -> None:
    with pytest.raises(DatasetError, match="holds labels only"):
        dataset_of(cifar_c / "labels.npy")
    (cifar_c / "labels.npy").unlink()

    with pytest.raises(DatasetError, match=r"has no 'labels.npy' beside it"):
        dataset_of(cifar_c / "fog.npy")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(10, int), "'fog.npy' .* 15 images for the 10 labels"),
        (np.zeros(15), "'labels.npy' .* one integer"),
        (np.full(15, 100), "'labels.npy' .* one integer"),
        (np.full(15, -1), "'labels.npy' .* one integer"),
        (np.array([None] * 15), "'labels.npy' .* objects"),
    ],
)
def test_labels_that_do_not_fit_are_an_error(
    cifar_c: Path, labels: NDArray[np.generic], message: str
) -> None:
    np.save(cifar_c / "labels.npy", labels, allow_pickle=True)

    with pytest.raises(DatasetError, match=message):
        dataset_of(cifar_c / "fog.npy")


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((15, 3, 32, 32), np.uint8),
        np.zeros((15, 32, 32, 3)),
        np.asfortranarray(np.zeros((15, 32, 32, 3), np.uint8)),
        np.zeros((14, 32, 32, 3), np.uint8),
    ],
)
def test_images_of_another_shape_or_type_are_an_error(
    cifar_c: Path, images: NDArray[np.generic]
) -> None:
    np.save(cifar_c / "fog.npy", images)

    with pytest.raises(DatasetError, match=r"'fog.npy' is damaged"):
        dataset_of(cifar_c, split="fog")


@pytest.mark.parametrize("kept", [0, 5, 100, 15 * 3072])
def test_a_truncated_file_is_named(cifar_c: Path, kept: int) -> None:
    file = cifar_c / "fog.npy"
    file.write_bytes(file.read_bytes()[:kept])

    with pytest.raises(DatasetError, match=r"'fog.npy' is damaged"):
        dataset_of(file)


def test_a_file_that_becomes_shorter_later_is_named_where_it_is_read(cifar_c: Path) -> None:
    dataset = dataset_of(cifar_c / "fog.npy")
    (cifar_c / "fog.npy").write_bytes((cifar_c / "fog.npy").read_bytes()[:5000])

    with pytest.raises(DatasetError, match=r"'fog.npy' .* shorter since the dataset was opened"):
        read_pixels(pickle.loads(pickle.dumps(dataset)))  # noqa: S301
