"""Folders are read as classes only where they are neither splits nor parts of another layout."""

import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import UNLABELLED
from tests.dataset_files import dataset_of
from tests.factories import png_of

PNG = png_of((20, 10, 200), (8, 6))
CLASSES = ("red/1.png", "red/2.png", "green/3.png")


def write(root: Path, *names: str) -> Path:
    """Writes files with these names; one that ends in a slash is a folder."""
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG if name.endswith((".png", ".jpg")) else b"path,label\n")
    return root


def below(folder: str, names: Iterable[str] = CLASSES) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


# type: ignore[arg-type]


def refused(root: Path, **options: object) -> str:
    with pytest.raises(DatasetError) as caught:
        dataset_of(root, **options)
    return str(caught.value)


FLAT = ("test/7.png", "test/8.png")


@pytest.mark.parametrize(
    "beside",
    [
        FLAT,
        (*FLAT, "unlabeled/9.png"),
        ("test/metadata.csv", *FLAT, "train/metadata.csv"),
        ("test/metadata.jsonl", *FLAT),
        ("test/red/7.png", "unlabeled/9.png"),
        ("val/red/7.png", "notes.txt"),
        ("test/red/7.png", "docs/readme.md"),
    ],
)
def test_splits_are_no_classes_whatever_is_in_them(tmp_path: Path, beside: tuple[str, ...]) -> None:
    write(tmp_path, *below("train"), *beside)

    assert "holds the splits" in refused(tmp_path)
    assert dataset_of(tmp_path, split="train").class_names == ("green", "red")


def test_an_empty_split_leaves_nothing_to_choose(tmp_path: Path) -> None:
    write(tmp_path, *below("train"), "test/")

    dataset = dataset_of(tmp_path)

    assert dataset.class_names == ("green", "red")
    assert dataset.sample_ids[0] == "train/green/3.png"


@pytest.mark.parametrize("split", ["test", "testing"])
def test_a_split_of_images_alone_is_read_without_labels(tmp_path: Path, split: str) -> None:
    write(tmp_path, *below("train"), *FLAT)

    dataset = dataset_of(tmp_path, split=split)

    assert dataset.class_names == (UNLABELLED,)
    assert dataset.sample_ids == ["test/7.png", "test/8.png"]


def test_a_split_is_found_by_the_words_around_it(tmp_path: Path) -> None:
    write(tmp_path, *below("train_images"), *below("test_images"))

    assert "holds the splits ['train_images', 'test_images']" in refused(tmp_path)
    assert dataset_of(tmp_path, split="train").class_names == ("green", "red")


def test_images_of_splits_with_a_table_beside_them_are_labelled_by_the_table(
    tmp_path: Path,
) -> None:
    write(tmp_path, "train/1.png", "test/2.png", "train.csv")

    assert "holds the splits" in refused(tmp_path)
    assert "labels are probably in 'train.csv'" in refused(tmp_path, split="train")
    assert dataset_of(tmp_path, split="train", unlabelled=True).sample_ids == ["train/1.png"]


def test_the_table_in_a_split_has_its_labels(tmp_path: Path) -> None:
    write(tmp_path, "train/1.png", "train/2.png", "test/3.png")
    (tmp_path / "train/metadata.csv").write_text("file_name,label\n1.png,red\n2.png,green\n")

    dataset = dataset_of(tmp_path, split="train")

    assert dataset.class_names == ("green", "red")
    assert dataset.sample_ids == ["1.png", "2.png"]


def test_splits_in_an_archive_are_no_classes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for name in (*below("photos/train"), "photos/test/7.png"):
            archive.writestr(name, PNG)

    assert "holds the splits ['train', 'test']" in refused(tmp_path / "photos.zip")
    assert dataset_of(tmp_path / "photos.zip", split="train").class_names == ("green", "red")


@pytest.mark.parametrize(
    "names",
    [
        ("train/1.png", "bus/2.png", "car/3.png"),
        ("train/a/1.png", "bus/b/2.png", "car/c/3.png"),
        ("bullet_train/1.png", "test_tube/2.png"),
    ],
)
def test_a_class_may_be_called_as_a_split_is(tmp_path: Path, names: tuple[str, ...]) -> None:
    write(tmp_path, *names)

    assert dataset_of(tmp_path).class_names == tuple(sorted({name.split("/")[0] for name in names}))


def test_splits_inside_of_classes_are_asked_about(tmp_path: Path) -> None:
    for name in ("bottle", "cable"):
        write(tmp_path, f"{name}/train/good/1.png", f"{name}/test/bad/2.png")

    assert "has splits in its folders" in refused(tmp_path)
    assert dataset_of(tmp_path, format="image-folder").class_names == ("bottle", "cable")


def test_a_person_can_say_that_folders_called_as_splits_are_classes(tmp_path: Path) -> None:
    write(tmp_path, "train/1.png", "test/2.png")

    assert "holds the splits" in refused(tmp_path)
    assert dataset_of(tmp_path, format="image-folder").class_names == ("test", "train")


OTHERS = {
    "Supervisely": ("meta.json", "ds/img/1.png", "ds/ann/1.png.json"),
    "Supervisely ": ("meta.json", "a/img/1.png", "a/ann/1.png.json", "b/img/1.png", "b/ann/2.json"),
    "KITTI": ("training/image_2/1.png", "training/label_2/1.txt", "testing/image_2/2.png"),
    "KITTI ": ("image_2/1.png", "label_2/1.txt"),
    "Pascal VOC": ("JPEGImages/1.jpg", "SegmentationObject/1.png", "SegmentationClass/1.png"),
    "Pascal VOC ": ("VOC2012/JPEGImages/1.jpg", "VOC2012/ImageSets/Main/cat_train.txt"),
    "CamVid": ("default/1.png", "defaultannot/1.png", "default.txt", "label_colors.txt"),
    "CamVid ": ("train/1.png", "trainannot/1.png", "val/2.png", "valannot/2.png"),
    "DOTA": ("images/1.png", "labelTxt/1.txt"),
    "DOTA ": ("train/images/1.png", "train/labelTxt/1.txt", "val/images/2.png"),
    "MVTec AD": ("train/good/1.png", "test/bad/2.png", "ground_truth/bad/2_mask.png"),
    "WIDER FACE": ("WIDER_train/images/0--Parade/1.jpg", "wider_face_split/train.txt"),
    "Cityscapes": ("leftImg8bit/train/a/1.png", "gtFine/train/a/1.png"),
    "boxes or masks": ("images/1.png", "labels/1.json"),
    "boxes or masks ": ("train/images/1.png", "train/masks/1.png", "val/images/1.png"),
}


@pytest.mark.parametrize(("title", "names"), OTHERS.items(), ids=OTHERS)
def test_other_layouts_are_refused_by_their_name(
    tmp_path: Path, title: str, names: tuple[str, ...]
) -> None:
    write(tmp_path / "data", *names)

    assert title.strip() in refused(tmp_path / "data")


@pytest.mark.parametrize(("title", "names"), OTHERS.items(), ids=OTHERS)
def test_other_layouts_are_refused_in_archives(
    tmp_path: Path, title: str, names: tuple[str, ...]
) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for name in names:
            archive.writestr(name, PNG)

    assert title.strip() in refused(tmp_path / "data.zip")


def test_the_kinds_of_defects_of_mvtec_are_the_classes_of_its_split(tmp_path: Path) -> None:
    write(tmp_path, *OTHERS["MVTec AD"], "test/good/3.png")

    assert "split='test'" in refused(tmp_path)
    assert dataset_of(tmp_path, split="test").class_names == ("bad", "good")


ANNOTATIONS = {
    "LabelMe": ("labels/1.xml", "<annotation><object><polygon></polygon></object></annotation>"),
    "VIA": ("via.json", '{"1.png5": {"regions": [{"shape_attributes": {}}]}}'),
    "Datumaro": ("annotations/all.json", '{"dm_format_version": "1.0", "items": []}'),
    "Lightly": ("labels/1.json", '{"file_name": "1.png", "predictions": [{"bbox": []}]}'),
    "Open Images": ("boxes.csv", "ImageID,Source,LabelName,Confidence,XMin,XMax\n"),
    "KITTI": ("labels/1.txt", "Car 0.00 0 -1.5 587.0 173.3 614.1 200.1 1 1 3 1 1 15 -1.6\n"),
}


@pytest.mark.parametrize(("title", "written"), ANNOTATIONS.items(), ids=ANNOTATIONS)
def test_annotations_of_other_programs_are_named(
    tmp_path: Path, title: str, written: tuple[str, str]
) -> None:
    write(tmp_path, "images/1.png" if "/" in written[0] else "1.png", "images/2.png", written[0])
    (tmp_path / written[0]).write_text(written[1])

    assert title.strip() in refused(tmp_path)


def test_class_folders_that_differ_in_capitals_are_told(tmp_path: Path) -> None:
    write(tmp_path, "Cat/1.png", "cat/2.png", "dog/3.png")

    dataset = dataset_of(tmp_path)

    assert dataset.class_names == ("Cat", "cat", "dog")
    assert "differ only in blanks, capital letters" in dataset.warnings[0]
    assert "'Cat' and 'cat'" in dataset.warnings[0]


def test_a_file_that_says_nothing_of_annotations_is_no_reason_to_ask(tmp_path: Path) -> None:
    write(tmp_path, *CLASSES)
    (tmp_path / "about.json").write_text('{"author": "somebody"}')

    assert dataset_of(tmp_path).class_names == ("green", "red")


def test_a_folder_of_files_called_as_the_images_is_no_class(tmp_path: Path) -> None:
    write(tmp_path, "photos/1.png", "photos/2.png", "boxes/1.txt", "boxes/2.txt")

    assert "'boxes'" in refused(tmp_path)
    assert "files called as the images are" in refused(tmp_path)


def test_a_folder_of_masks_is_no_class(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(4)]
    write(tmp_path, *below("photos", names), *below("ground truth", names))

    assert "masks of the images in 'photos'" in refused(tmp_path)


def test_people_with_and_without_masks_are_classes(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(4)]
    write(tmp_path, *below("with_mask", names), *below("without_mask", names))

    assert dataset_of(tmp_path).class_names == ("with_mask", "without_mask")


@pytest.mark.parametrize("folder", ["", "cat/"])
def test_images_with_a_file_of_annotations_each_are_asked_about(
    tmp_path: Path, folder: str
) -> None:
    write(tmp_path, *(f"{folder}{n}.{kind}" for n in range(3) for kind in ("png", "xmp", "txt")))
    write(tmp_path, *(["dog/1.png"] if folder else []))

    assert "a .txt beside most of its" in refused(tmp_path)
    assert (
        "2.png" in dataset_of(tmp_path, format="image-folder").sample_ids[-3 if not folder else 6]
    )


def test_what_a_camera_writes_beside_its_images_is_no_question(tmp_path: Path) -> None:
    names = [f"IMG_{n}.{kind}" for n in range(30) for kind in ("png", "MOV", "AAE", "png.json")]
    write(tmp_path, *below("cat", names), "dog/1.png")

    assert dataset_of(tmp_path).class_names == ("cat", "dog")


def test_many_files_that_would_not_be_read_are_asked_about(tmp_path: Path) -> None:
    write(tmp_path, *CLASSES, *(f"{number}.png" for number in range(21)))

    assert "21 other files that would not be read" in refused(tmp_path)
    assert dataset_of(tmp_path, format="image-folder").class_names == ("green", "red")


def test_a_few_files_without_a_class_are_listed_and_no_question(tmp_path: Path) -> None:
    write(tmp_path, *CLASSES, "stray.png", "docs/readme.md")

    dataset = dataset_of(tmp_path)

    assert dataset.class_names == ("green", "red")
    assert ("docs", "a folder without images") in dataset.skipped
    assert ("stray.png", "an image outside the class folders") in dataset.skipped


def test_folders_that_hold_tables_alone_are_named(tmp_path: Path) -> None:
    write(tmp_path, "en/train.parquet", "fr/train.parquet")

    assert "hold no images, but 'en/train.parquet'" in refused(tmp_path)


def test_images_in_a_folder_for_those_without_a_label_have_none(tmp_path: Path) -> None:
    write(tmp_path, *CLASSES, "unlabeled/9.png")

    dataset = dataset_of(tmp_path)

    assert dataset.class_names == ("green", "red")
    assert ("unlabeled", "a folder of images without a label") in dataset.skipped


@pytest.mark.parametrize("folder", ["images", "train", "data"])
def test_the_only_folder_is_no_class_where_it_is_called_as_one_of_images(
    tmp_path: Path, folder: str
) -> None:
    write(tmp_path, f"{folder}/1.png", f"{folder}/2.png")

    assert dataset_of(tmp_path).class_names == (UNLABELLED,)


def test_years_in_each_class_are_no_classes(tmp_path: Path) -> None:
    write(tmp_path, *(f"{c}/{year}/1.png" for c in ("cat", "dog") for year in (2019, 2020)))

    assert dataset_of(tmp_path).class_names == ("cat", "dog")


def test_the_only_folder_is_a_class_where_it_may_be_one(tmp_path: Path) -> None:
    write(tmp_path, "cat/1.png")

    assert dataset_of(tmp_path).class_names == ("cat",)


def test_the_table_of_images_is_named_and_none_of_numbers_of_classes(tmp_path: Path) -> None:
    write(tmp_path, "images/1.png", "images/2.png", "labels.csv")
    (tmp_path / "classes.csv").write_text("id,name\n0,cat\n")

    assert "with 'labels.csv' beside it" in refused(tmp_path)
    assert "name that table as the dataset" in refused(tmp_path)

    (tmp_path / "labels.csv").write_text("what,kind\n1.png,cat\n")  # called as no others are
    assert "with 'classes.csv' beside it" in refused(tmp_path)


def test_all_tables_of_images_are_named(tmp_path: Path) -> None:
    write(tmp_path, "images/1.png", "images/2.png", "test.csv", "train.csv", "notes.csv")
    (tmp_path / "notes.csv").write_text("author\nsomebody\n")

    assert "with 'test.csv', 'train.csv' beside it" in refused(tmp_path)
    assert "name one of these tables as the dataset" in refused(tmp_path)


LISTS = {
    "labels.json": '[{"file": "1.png", "label": "cat"}, {"file": "2.png", "label": "dog"}]',
    "classes.json": '{"1.png": "cat", "2.png": "dog"}',
    "labels.txt": "1.png cat\n2.png dog\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_images_alone_beside_a_file_that_names_them_are_not_without_labels(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path, "1.png", "2.png")
    (tmp_path / name).write_text(LISTS[name])

    assert f"the labels are probably in '{name}'" in refused(tmp_path)
    assert ("name that table" in refused(tmp_path)) == (name == "labels.json")
    assert len(dataset_of(tmp_path, unlabelled=True).labels) >= 2
    assert dataset_of(tmp_path, format="image-folder").class_names == ("unlabelled",)


@pytest.mark.parametrize(
    ("name", "text"),
    [("about.json", '{"author": "image"}'), ("readme.txt", "image\n1.png is the first\n")],
)
def test_images_alone_beside_other_files_are_without_labels(
    tmp_path: Path, name: str, text: str
) -> None:
    write(tmp_path, *(f"{number}.png" for number in range(4)))
    (tmp_path / name).write_text(text)

    assert dataset_of(tmp_path).class_names == ("unlabelled",)
