"""The paths of a table lead to images beside it, or in a folder that is called as the table is."""

from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets.sample import Dataset
from tests.dataset_files import contents_of, dataset_of
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
    return dataset_of(root / "train.csv", **options)


@pytest.mark.parametrize("folder", ["train", "train_images", "images", "Images"])
def test_images_are_found_in_a_folder_called_as_the_table(tmp_path: Path, folder: str) -> None:
    (tmp_path / "test").mkdir()

    dataset = read(tmp_path, folder)

    assert contents_of(dataset) == [PNG] * 3
    assert dataset.sample_ids == ["0.png", "1.png", "2.png"]
    assert dataset.warnings == (f"'train.csv' has its images below {folder!r}",)


@pytest.mark.parametrize("ending", [".png", ".jpg", ".JPEG"])
def test_the_ending_that_ids_of_images_lack_is_found(tmp_path: Path, ending: str) -> None:
    dataset = read(tmp_path, "train", ending, image_column="image_id")

    assert contents_of(dataset) == [PNG] * 3
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

    assert contents_of(dataset) == [PNG] * 3
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


def write_ids(root: Path, column: str, folders: list[str], ending: str = ".png") -> Path:
    """A table with ids alone, of images that are shared out between folders."""
    ids = [f"{number:03}ab" for number in range(60)]
    for number, each in enumerate(ids):
        folder = root / folders[number * len(folders) // len(ids)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{each}{ending}").write_bytes(PNG)
    rows = "".join(f"{each},{number % 2}\n" for number, each in enumerate(ids))
    path = root / "metadata.csv"
    path.write_text(f"{column},label\n{rows}")
    return path


@pytest.mark.parametrize("column", ["image_id", "id_code", "Image Index", "ImageID", "isic_id"])
def test_columns_of_ids_are_those_of_images_where_there_is_no_other(
    tmp_path: Path, column: str
) -> None:
    (tmp_path / "other").mkdir()

    dataset = dataset_of(write_ids(tmp_path, column, ["pictures"]))

    assert contents_of(dataset) == [PNG] * 60
    assert dataset.sample_ids[:2] == ["000ab", "001ab"]
    assert "below 'pictures' and with '.png' after their names" in dataset.warnings[0]


def test_ids_of_numbers_keep_their_zeros(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(3):
        (tmp_path / "images" / f"00{number}.png").write_bytes(PNG)
    (tmp_path / "train.csv").write_text("Image Index,label\n000,a\n001,b\n002,a\n")

    dataset = dataset_of(tmp_path / "train.csv")

    assert dataset.sample_ids == ["000", "001", "002"]
    assert contents_of(dataset) == [PNG] * 3


def test_images_that_several_folders_share_are_found_in_each(tmp_path: Path) -> None:
    path = write_ids(tmp_path, "image_id", ["HAM_images_part_1", "HAM_images_part_2"], ".jpg")

    dataset = dataset_of(path)

    assert contents_of(dataset) == [PNG] * 60
    assert "'HAM_images_part_1', 'HAM_images_part_2'" in dataset.warnings[0]


def test_the_folder_with_all_images_is_taken_and_not_the_first_with_some(tmp_path: Path) -> None:
    path = write_ids(tmp_path, "image_id", ["pictures"])
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "000ab.png").write_bytes(png_of((1, 2, 3), (8, 6)))

    dataset = dataset_of(path)

    assert contents_of(dataset) == [PNG] * 60
    assert "below 'pictures'" in dataset.warnings[0]


def test_ids_without_an_image_are_refused_with_what_was_tried(tmp_path: Path) -> None:
    path = write_ids(tmp_path, "image_id", ["pictures"])
    for image in (tmp_path / "pictures").iterdir():
        image.unlink()

    with pytest.raises(DatasetError, match="'000ab' was looked for as '000ab', 'pictures/000ab'"):
        dataset_of(path)


def test_names_without_an_ending_that_are_not_found_are_told_with_what_was_tried(
    tmp_path: Path,
) -> None:
    path = write_ids(tmp_path, "file", ["pictures"], ".jpg2")

    dataset = dataset_of(path)

    (note,) = dataset.warnings
    assert note.startswith("'metadata.csv' has images that are not found: '000ab' was looked for")
    assert "'pictures/000ab', each with .jpg, " in note


@pytest.mark.parametrize("path", ["00.PNG", "/home/somebody/00.png", "C:\\photos\\00.png"])
def test_paths_of_another_machine_are_told_before_an_image_is_read(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/00.png").write_bytes(PNG)
    table = tmp_path / "t.csv"
    table.write_text(f"path,label\n{path},cat\n")

    (note,) = dataset_of(table).warnings

    assert note.startswith(f"'t.csv' has images that are not found: {path!r} was looked for as")
    assert ("'images/00.PNG'" in note) == (path == "00.PNG")
    table.write_text(f"path,label\n{path},cat\n{tmp_path / 'images/00.png'},dog\n")
    assert dataset_of(table).warnings == ()


@pytest.mark.parametrize("column", ["filename", "image_id"])
def test_names_without_images_beside_texts_may_be_names_of_texts(
    tmp_path: Path, column: str
) -> None:
    (tmp_path / "t.csv").write_text(f"{column},text,label\na.txt,good day,x\nb.txt,good night,y\n")

    with pytest.raises(DatasetError) as error:
        dataset_of(tmp_path / "t.csv")

    assert f"in the column '{column}', 'a.txt' was looked for as 'a.txt'" in str(error.value)
    assert str(error.value).endswith("as image_column, or, for texts, pass text_column='text'")
    assert list(dataset_of(tmp_path / "t.csv", text_column="text").labels) == [0, 1]
    if column == "filename":  # a column that was named is one of images
        (note,) = dataset_of(tmp_path / "t.csv", image_column=column).warnings
        assert note.startswith("'t.csv' has images that are not found: 'a.txt' was looked for")


def test_a_column_that_may_hold_texts_is_not_looked_for_in_folders(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("what,label\nsome text,cat\n")

    assert dataset_of(tmp_path / "t.csv", image_column="what").warnings == ()
