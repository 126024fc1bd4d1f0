"""Published datasets are recognised by their files, on any storage and within a boundary."""

from pathlib import Path

import fsspec
import numpy as np
import pytest
from scipy.io import savemat

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import DATASETS, open_dataset
from difficulty_service.datasets.recognition import detect_kind
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.storage import OUTSIDE, boundary_at
from tests.dataset_files import dataset_of, draw_images, read_pixels


@pytest.mark.parametrize(
    ("files", "location", "kind"),
    [
        (["data_batch_1", "readme.html"], "", "cifar"),
        (["test_batch.bin"], "", "cifar"),
        (["test_batch.bin"], "test_batch.bin", "cifar"),
        (["train", "test", "meta"], "", "cifar"),
        (["train", "test", "meta"], "test", "cifar"),
        (["train.bin", "fine_label_names.txt"], "", "cifar"),
        (["labels.npy", "fog.npy"], "", "cifar-c"),
        (["labels.npy", "fog.npy"], "fog.npy", "cifar-c"),
        (["extra_32x32.mat"], "", "svhn"),
        (["extra_32x32.mat"], "extra_32x32.mat", "svhn"),
        (["train-images-idx3-ubyte"], "", "idx"),
        (["t10k-images.idx3-ubyte.gz"], "t10k-images.idx3-ubyte.gz", "idx"),
        (["wnids.txt", "words.txt", "train/n00000001/images/a.JPEG"], "", "tiny-imagenet"),
        (["wnids.txt", "train/n00000001/images/a.JPEG"], "train", "tiny-imagenet"),
        (["val/val_annotations.txt", "val/images/val_0.JPEG"], "val", "tiny-imagenet"),
        (["ILSVRC2012_val_00000001.JPEG"], "", "imagenet-validation"),
        (["val/ILSVRC2012_val_00000001.JPEG"], "", "imagenet-validation"),
        (["train/n00000001/a.JPEG"], "train", "image-folder"),
        (["val/n00000001/ILSVRC2012_val_00000001.JPEG"], "", "image-folder"),
        (["val/n00000001/ILSVRC2012_val_00000001.JPEG"], "val", "image-folder"),
        (["train.csv", "test.csv", "meta"], "", "table"),
    ],
)
def test_the_kind_is_detected_from_the_names_of_the_files(
    tmp_path: Path, files: list[str], location: str, kind: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    assert detect_kind(str(tmp_path / location)) == kind
    assert kind in DATASETS


def test_files_on_remote_storage_are_read_in_place(cifar_10: Path, tmp_path: Path) -> None:
    digits = {"X": draw_images(32, 32, 3, 4), "y": [[1], [10], [9], [10]]}
    savemat(tmp_path / "test_32x32.mat", digits)
    memory, options = fsspec.filesystem("memory"), DatasetOptions(split="test")
    for file in (*cifar_10.iterdir(), tmp_path / "test_32x32.mat"):
        memory.pipe(f"/published/{file.parent.name}/{file.name}", file.read_bytes())

    cifar = open_dataset(f"memory://published/{cifar_10.name}", options)
    svhn = open_dataset(f"memory://published/{tmp_path.name}", options)

    local = open_dataset(str(cifar_10), options)
    np.testing.assert_array_equal(read_pixels(cifar), read_pixels(local))
    np.testing.assert_array_equal(read_pixels(svhn), digits["X"].transpose(3, 0, 1, 2))


def test_a_link_to_a_file_outside_the_boundary_is_refused(tmp_path: Path, cifar_10: Path) -> None:
    secret = tmp_path / "secret"
    (cifar_10 / "test_batch").rename(secret)
    (cifar_10 / "test_batch").symlink_to(secret)
    options = DatasetOptions(split="test", boundary=boundary_at(str(cifar_10)))

    with pytest.raises(DatasetError, match=OUTSIDE):
        open_dataset(str(cifar_10), options)
    assert dataset_of(cifar_10, split="test").labels[1] == 9
