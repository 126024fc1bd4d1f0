"""Tiny ImageNet as published."""

from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.storage import boundary_at
from tests.dataset_files import IMAGES, dataset_of

CRANE_BIRD, CRANE_MACHINE, FISH = "n02012849", "n03126707", "n01443537"
TRAIN, VAL = DatasetOptions(split="train"), DatasetOptions(split="val")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Three classes, two of which share their first word; three images to validate with."""
    root = tmp_path / "tiny-imagenet-200"
    for number, wordnet_id in enumerate([CRANE_MACHINE, FISH, CRANE_BIRD]):
        folder = root / "train" / wordnet_id / "images"
        folder.mkdir(parents=True)
        (folder / f"{wordnet_id}_0.JPEG").write_bytes(IMAGES[number])
        (folder / f"{wordnet_id}_1.JPEG").write_bytes(IMAGES[number + 3])
        (folder.parent / f"{wordnet_id}_boxes.txt").write_text(f"{wordnet_id}_0.JPEG\t0\t0\t9\t9\n")
    (root / "val" / "images").mkdir(parents=True)
    for number in range(3):
        (root / "val" / "images" / f"val_{number}.JPEG").write_bytes(IMAGES[number])
    (root / "val" / "val_annotations.txt").write_text(
        f"val_0.JPEG\t{FISH}\t0\t32\t44\t62\nval_1.JPEG\t{CRANE_BIRD}\t1\t1\t2\t2\n"
        f"val_2.JPEG\t{FISH}\t1\t1\t2\t2\n"
    )
    (root / "test" / "images").mkdir(parents=True)
    (root / "test" / "images" / "test_0.JPEG").write_bytes(IMAGES[0])
    (root / "wnids.txt").write_text(f"{CRANE_MACHINE}\n{FISH}\n{CRANE_BIRD}\n")
    (root / "words.txt").write_text(
        f"n00001740\tentity\n{FISH}\tgoldfish, Carassius auratus\n{CRANE_BIRD}\tcrane\n"
        f"{CRANE_MACHINE}\tcrane\n"
    )
    return root


def test_classes_are_called_by_their_first_word_made_unique(tiny: Path) -> None:
    names = ("goldfish", "crane (n02012849)", "crane (n03126707)")

    assert open_dataset(str(tiny), TRAIN).class_names == names
    assert open_dataset(str(tiny), VAL).class_names == names


def test_the_training_images_are_those_in_the_folders_of_images(tiny: Path) -> None:
    dataset = open_dataset(str(tiny), TRAIN)

    samples = list(dataset.read_shard(0))
    assert [sample.label for sample in samples] == [0, 0, 1, 1, 2, 2]
    assert samples[5].sample_id == f"train/{CRANE_MACHINE}/images/{CRANE_MACHINE}_1.JPEG"
    with samples[5].open() as file:
        assert file.read() == IMAGES[3]


def test_the_validation_labels_are_those_of_the_annotations(tiny: Path) -> None:
    dataset = open_dataset(str(tiny), VAL)

    assert dataset.labels.tolist() == [0, 1, 0]
    assert dataset.sample_ids[1] == "val/images/val_1.JPEG"


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_folder_of_a_split_gives_the_same_samples(tiny: Path, split: str) -> None:
    direct = dataset_of(tiny / split)

    chosen = dataset_of(tiny, split=split)
    assert direct.fingerprint == chosen.fingerprint


def test_one_of_the_labelled_splits_has_to_be_chosen(tiny: Path) -> None:
    with pytest.raises(DatasetError, match=r"holds the splits \['train', 'val'\]"):
        dataset_of(tiny)
    with pytest.raises(DatasetError, match=r"no split 'test'; choose one of \['train', 'val'\]"):
        dataset_of(tiny, split="test")


def test_a_validation_image_without_label_is_an_error(tiny: Path) -> None:
    annotations = tiny / "val" / "val_annotations.txt"
    annotations.write_text("".join(annotations.read_text().splitlines(keepends=True)[:1]))

    with pytest.raises(DatasetError, match=r"'val_annotations.txt' .* 2 images, first 'val_1.JPEG"):
        open_dataset(str(tiny), VAL)


def test_a_validation_image_without_file_is_a_bad_sample(tiny: Path) -> None:
    (tiny / "val" / "images" / "val_1.JPEG").unlink()

    sample = list(open_dataset(str(tiny), VAL).read_shard(0))[1]

    with pytest.raises(ImageError, match="no such file"):
        sample.open()


@pytest.mark.parametrize("line", ["val_0.JPEG", "val_0.JPEG\tn0144", "val_0.JPEG\tn00000000"])
def test_a_wrong_annotation_is_named(tiny: Path, line: str) -> None:
    annotations = tiny / "val" / "val_annotations.txt"
    annotations.write_text(f"{line}\n{annotations.read_text()}".replace("\nval_0.JPEG", "\nval_x"))

    with pytest.raises(DatasetError, match=r"val_annotations.txt|not in 'wnids.txt'"):
        open_dataset(str(tiny), VAL)


def test_a_boundary_at_a_split_keeps_its_parent_unread(tiny: Path) -> None:
    folder = str(tiny / "val")

    dataset = dataset_of(folder, boundary=boundary_at(folder))

    assert dataset.class_names == (FISH, CRANE_BIRD)
