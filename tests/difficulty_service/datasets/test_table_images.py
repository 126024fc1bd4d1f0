"""The paths of a table lead to images beside it, or in a folder that is called as the table is."""

from pathlib import Path

import pytest

from difficulty_service.base.errors import ImageError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from tests.factories import png_of

PNG = png_of((20, 10, 200), (8, 6))


def read(root: Path, folder: str, ending: str = ".png", **options: str) -> Dataset:
    """A table with three images in a folder beside it, by names without it."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for number in range(3):
        (root / folder / f"{number}{ending}").write_bytes(PNG)
    shown = "" if options else ending
    rows = "".join(f"{number}{shown},c\n" for number in range(3))
    (root / "train.csv").write_text(f"{'image_id' if options else 'path'},label\n{rows}")
    return open_dataset(str(root / "train.csv"), DatasetOptions(**options))


def images_of(dataset: Dataset) -> list[bytes]:
    found = []
    for sample in dataset.read_shard(0):
        with sample.open() as file:
            found.append(file.read())
    return found


@pytest.mark.parametrize("folder", ["train", "train_images", "images", "Images"])
def test_images_are_found_in_a_folder_called_as_the_table(tmp_path: Path, folder: str) -> None:
    (tmp_path / "test").mkdir()

    dataset = read(tmp_path, folder)

    assert images_of(dataset) == [PNG] * 3
    assert dataset.sample_ids == ["0.png", "1.png", "2.png"]
    assert dataset.warnings == (f"'train.csv' has its images below {folder!r}",)


@pytest.mark.parametrize("ending", [".png", ".jpg", ".JPEG"])
def test_the_ending_that_ids_of_images_lack_is_found(tmp_path: Path, ending: str) -> None:
    dataset = read(tmp_path, "train", ending, image_column="image_id")

    assert images_of(dataset) == [PNG] * 3
    expected = f"'train.csv' has its images below 'train' and with {ending!r} after their names"
    assert dataset.warnings == (expected,)


def test_images_beside_the_table_come_first(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(PNG)

    dataset = read(tmp_path, "train")

    assert dataset.warnings == ()
    with pytest.raises(ImageError, match="no such file"):
        next(dataset.read_shard(0)).open()


@pytest.mark.parametrize(
    "folder",
    ["train/train", "train/images", "faces/faces", "jpeg/train", "pictures", "a/train/images"],
)
def test_images_are_found_in_the_only_folder_or_in_the_likely_ones_in_it(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder).parent.joinpath("test").mkdir(parents=True)

    dataset = read(tmp_path, folder)

    assert images_of(dataset) == [PNG] * 3
    assert dataset.warnings == (f"'train.csv' has its images below {folder!r}",)


@pytest.mark.parametrize("folder", ["test", "test/images", "images/test", "a/test"])
def test_images_of_another_split_are_not_taken_for_those_of_a_table(
    tmp_path: Path, folder: str
) -> None:
    dataset = read(tmp_path, folder)

    with pytest.raises(ImageError, match="no such file"):
        next(dataset.read_shard(0)).open()


def test_images_in_one_of_several_other_folders_are_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()

    dataset = read(tmp_path, "elsewhere")

    with pytest.raises(ImageError, match="no such file"):
        next(dataset.read_shard(0)).open()
