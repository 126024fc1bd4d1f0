"""The flat folder of ImageNet's validation images, with labels from several files."""

import hashlib
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from torchvision.datasets import imagenet

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.recognition import detect_kind
from tests.dataset_files import IMAGES, dataset_of

FISH, BIRD, DOG = "n01440764", "n01530575", "n02085620"
WORDNET_IDS = [DOG, FISH, DOG, BIRD]


@pytest.fixture
def validation(tmp_path: Path) -> Path:
    """Four images in a folder `val`."""
    folder = tmp_path / "imagenet" / "val"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"ILSVRC2012_val_{number + 1:08}.JPEG").write_bytes(IMAGES[number])
    return folder


def _write_devkit(data: Path) -> None:
    """Three classes and a group of them, numbered in another order than that of their ids."""
    data.mkdir(parents=True)
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num", "O")]
    rows = [(1, DOG, "dog, hound", "", 0), (2, FISH, "fish", "", 0), (3, BIRD, "bird", "", 0)]
    synsets = np.array([*rows, (1001, "n00001740", "entity", "", 3)], dtype=kind)
    savemat(data / "meta.mat", {"synsets": synsets.reshape(-1, 1)})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n1\n3\n")


def test_the_labels_of_the_development_kit_are_read_as_by_torchvision(
    validation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devkit = validation.parent / "ILSVRC2012_devkit_t12"
    _write_devkit(devkit / "data")
    packed = tmp_path / "devkit.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(devkit, devkit.name)
    checksum = hashlib.md5(packed.read_bytes()).hexdigest()  # noqa: S324 - torchvision's
    monkeypatch.setitem(imagenet.ARCHIVE_META, "devkit", (packed.name, checksum))
    imagenet.parse_devkit_archive(str(tmp_path))
    _, expected = imagenet.load_meta_file(str(tmp_path))

    dataset = dataset_of(validation)

    assert [dataset.class_names[label] for label in dataset.labels] == expected == WORDNET_IDS
    assert dataset.class_names == (FISH, BIRD, DOG)
    assert dataset.sample_ids[0] == "ILSVRC2012_val_00000001.JPEG"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("imagenet_2012_validation_synset_labels.txt", ["{1}"]),
        ("val_synsets.txt", ["ILSVRC2012_val_{0:08}.JPEG {1}"]),
        ("val_synsets.txt", ["ILSVRC2012_val_{0:08} {1}"]),
        (
            "LOC_val_solution.csv",
            ["ImageId,PredictionString", "ILSVRC2012_val_{0:08},{1} 1 2 3 4 {1} 5 6 7 8"],
        ),
    ],
)
@pytest.mark.parametrize("above", range(3))
def test_labels_are_found_in_lists_beside_or_above_the_images(
    validation: Path, name: str, lines: list[str], above: int
) -> None:
    rows = [lines[-1].format(number, each) for number, each in enumerate(WORDNET_IDS, 1)]
    folder = [validation, *validation.parents][above]
    (folder / name).write_text("\n".join([*lines[:-1], *rows]) + "\n")

    dataset = dataset_of(validation)

    assert [dataset.class_names[label] for label in dataset.labels] == WORDNET_IDS


def test_a_subset_of_the_images_keeps_its_labels(validation: Path) -> None:
    (validation / "val_synsets.txt").write_text("\n".join(WORDNET_IDS))
    (validation / "ILSVRC2012_val_00000002.JPEG").unlink()

    dataset = dataset_of(validation)

    assert [dataset.class_names[label] for label in dataset.labels] == [DOG, DOG, BIRD]


def test_without_labels_the_message_says_what_to_put_where(validation: Path) -> None:
    with pytest.raises(
        DatasetError,
        match=r"no file with their labels .*; put there the folder 'ILSVRC2012_devkit_t12' .*"
        r"'LOC_val_solution.csv'.*'val_synsets.txt'",
    ):
        dataset_of(validation)


def test_the_folder_above_is_never_one_class_called_val(validation: Path) -> None:
    (validation / "val_synsets.txt").write_text("\n".join(WORDNET_IDS))
    root = str(validation.parent)

    assert len(dataset_of(root).labels) == 4
    (validation.parent / "train" / FISH).mkdir(parents=True)
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'val'\]"):
        dataset_of(root)
    assert len(dataset_of(root, split="val").labels) == 4
    assert detect_kind(root, split="train") == "image-folder"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n".join(WORDNET_IDS[:3]), r"no label for the image 'ILSVRC2012_val_00000004.JPEG'"),
        ("tench\n" * 4, "'tench' is not a WordNet id"),
        ("", "no label for the image 'ILSVRC2012_val_00000001"),
    ],
)
def test_a_list_that_does_not_fit_is_named(validation: Path, text: str, message: str) -> None:
    (validation / "val_synsets.txt").write_text(text)

    with pytest.raises(DatasetError, match=f"'val_synsets.txt' .*{message}"):
        dataset_of(validation)


@pytest.mark.parametrize(
    ("file", "content"),
    [("meta.mat", "x" * 200), ("ILSVRC2012_validation_ground_truth.txt", "1\n2\n1\n4\n")],
)
def test_a_damaged_development_kit_is_named(validation: Path, file: str, content: str) -> None:
    data = validation / "data"
    _write_devkit(data)
    (data / file).write_text(content)

    with pytest.raises(DatasetError, match=f"'{file}' is damaged"):
        dataset_of(validation)


def test_a_development_kit_without_its_list_of_classes_says_what_is_missing(
    validation: Path,
) -> None:
    _write_devkit(validation / "data")
    (validation / "data" / "meta.mat").unlink()

    with pytest.raises(DatasetError, match=r"no 'meta.mat' beside 'ILSVRC2012_validation_ground"):
        dataset_of(validation)
