"""Images in memory as people hold them: each is read as it was meant, or the remedy is named."""

import io
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

import difficulty_service as ds
from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.interface.image_sources import open_images, zip_labels
from tests.small_network import SMALL

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 5, 3), dtype=np.uint8)
NUMBERS = np.arange(12) % 3
ONE_HOT = np.eye(3, dtype=np.int64)[NUMBERS]
FLOATS = PIXELS.astype(np.float32) / 255
TENSORS = torch.from_numpy(FLOATS).permute(0, 3, 1, 2)

HELD: dict[str, Callable[[], object]] = {
    "pairs": lambda: list(zip(PIXELS, NUMBERS, strict=True)),
    "arrays": lambda: zip_labels(PIXELS, NUMBERS),
    "lists": lambda: zip_labels(list(PIXELS), [str(number) for number in NUMBERS]),
    "one-hot labels": lambda: zip_labels(PIXELS, ONE_HOT),
    "pairs with one-hot labels": lambda: list(zip(PIXELS, ONE_HOT, strict=True)),
    "floats from 0 to 1": lambda: zip_labels(FLOATS, NUMBERS),
    "integers of 64 bits": lambda: zip_labels(PIXELS.astype(np.int64), NUMBERS),
    "a TensorDataset": lambda: TensorDataset(TENSORS, torch.from_numpy(NUMBERS)),
    "one-hot tensors": lambda: TensorDataset(TENSORS, torch.from_numpy(ONE_HOT)),
    "half precision": lambda: zip_labels(TENSORS.half(), NUMBERS),
    "a dict of columns": lambda: {"image": PIXELS, "label": NUMBERS},
    "a DataFrame of arrays": lambda: pd.DataFrame(
        {"Image": list(PIXELS), "Label": NUMBERS}, index=range(50, 62)
    ),
    "Series": lambda: zip_labels(
        pd.Series(list(PIXELS), index=range(50, 62)), pd.Series(NUMBERS, index=range(50, 62))
    ),
    "an Arrow table": lambda: pa.table({"bytes": [to_png(each) for each in PIXELS], "y": NUMBERS}),
}


def to_png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("kind", HELD)
def test_images_in_memory_are_read_as_they_were_meant(kind: str) -> None:
    dataset, warnings = open_images(HELD[kind](), DatasetOptions())

    assert dataset.class_names == ("0", "1", "2")
    assert dataset.labels.tolist() == NUMBERS.tolist()
    assert (*dataset.warnings, *warnings) == ()
    for pixels, sample in zip(PIXELS, dataset.read_shard(0), strict=True):
        with sample.open() as file:
            np.testing.assert_array_equal(np.asarray(Image.open(file).convert("RGB")), pixels)


def test_a_data_frame_of_paths_has_these_as_ids_or_the_column_that_is_named(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.png") for number in range(12)]
    frame = pd.DataFrame({"path": paths, "label": NUMBERS, "number": range(12)})

    by_path, _ = open_images(frame, DatasetOptions())
    by_number, _ = open_images(frame, DatasetOptions(id_column="number"))

    assert list(by_path.sample_ids) == paths
    assert list(by_number.sample_ids) == [str(number) for number in range(12)]


MISHELD: dict[str, tuple[Callable[[], object], str]] = {
    "images alone": (lambda: PIXELS, r"pass `score_dataset\(images, labels\)`"),
    "two arrays": (lambda: (PIXELS, NUMBERS), r"pass `score_dataset\(images, labels\)`"),
    "dicts": (lambda: [{"image": PIXELS[0]}], r"or `list\(zip\(images, labels\)\)`"),
    "a generator": (lambda: iter([(PIXELS[0], 1)]), r"such as `list\(pairs\)`"),
    "a loader": (lambda: DataLoader(TensorDataset(TENSORS)), "the `dataset` of that loader"),
    "no labels": (lambda: [(PIXELS[0], None)], "none of the 1 images has a label; label some"),
    "labels missing": (lambda: zip_labels(PIXELS, [1]), "12 images and 1 labels; pass one label"),
    "labels of a path": (lambda: zip_labels("photos", [1]), "or a path or table alone"),
    "lists of labels": (lambda: [(PIXELS[0], ["a", "b"])], "'a', 'b'; write one label in each row"),
    "no column": (lambda: pd.DataFrame({"x": [1]}), "it has .*'x'.*name one of these as image_col"),
    "two columns": (
        lambda: {"image": [1], "a_label": [1], "b_label": [1]},
        "evidently that of the labels: .*; name one of these as label_column",
    ),
}


@pytest.mark.parametrize("kind", MISHELD)
def test_what_holds_no_pairs_is_answered_by_the_line_that_would_work(kind: str) -> None:
    hold, words = MISHELD[kind]

    with pytest.raises(DatasetError, match=words):
        open_images(hold(), DatasetOptions())


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (FLOATS * 255, r"from 4 to 248; .*convert them by `astype\('uint8'\)`"),
        ((FLOATS - 0.5) / 0.25, "leave out what scales them"),
        (PIXELS.astype(np.uint16), "pixels are uint8 from 0 to 255, or floats"),
        (np.full_like(FLOATS, np.nan), "from nan to nan"),
    ],
)
def test_pixels_of_another_range_are_answered_by_the_remedy(
    images: NDArray[np.generic], words: str
) -> None:
    dataset, _ = open_images(zip_labels(images, NUMBERS), DatasetOptions())

    with pytest.raises(ImageError, match=words):
        next(iter(dataset.read_shard(0))).open()


def test_images_and_labels_apart_are_scored_as_pairs_are() -> None:
    images = np.random.default_rng(1).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    labels = ["cat", "dog"] * 12
    pairs = list(zip(images, labels, strict=True))

    with pytest.warns(UserWarning, match="unreliable"):
        apart = ds.score_dataset(images, labels, shrinkage="oas", progress=False, backbone=SMALL)
    with pytest.warns(UserWarning, match="unreliable"):
        together = ds.score_dataset(pairs, shrinkage="oas", progress=False, backbone=SMALL)

    assert apart["rmd"].to_pylist() == together["rmd"].to_pylist()
    assert apart["label_name"].to_pylist() == labels


class Folder(torch.utils.data.Dataset[tuple[Image.Image, int]]):
    """Images with the attributes of an ImageFolder of torchvision."""

    def __init__(self, classes: list[str], targets: object) -> None:
        self.classes = classes
        self.targets = targets

    def __len__(self) -> int:
        return 4

    def __getitem__(self, position: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (8, 8)), int(list(self.targets)[position])  # type: ignore[call-overload]


def names_of(images: object) -> list[str]:
    dataset, _ = open_images(images, DatasetOptions())
    return [dataset.class_names[label] for label in dataset.labels.tolist()]


def test_parts_of_datasets_keep_the_names_of_their_classes() -> None:
    folder = Folder(["cat", "dog"], [0, 1, 1, 0])

    assert names_of(Subset(folder, [3, 1])) == ["cat", "dog"]
    assert names_of(Subset(Subset(folder, torch.tensor([3, 1])), [1])) == ["dog"]


def test_joined_datasets_are_matched_by_the_names_of_their_classes() -> None:
    one = Folder(["cat", "dog"], [0, 1, 1, 0])
    other = Folder(["bird", "cat"], torch.tensor([0, 1, 1, -1]))

    assert names_of(ConcatDataset([one, other])) == [
        *("cat", "dog", "dog", "cat"),
        *("bird", "cat", "cat"),
    ]
    assert names_of(Subset(ConcatDataset([one, other]), [5, 0, 4, -3])) == [
        *("cat", "cat", "bird", "cat"),
    ]


def test_joined_datasets_whose_classes_cannot_be_matched_are_refused() -> None:
    folders = [Folder(["cat", "dog"], [0] * 4), Folder(["dog", "cat"], [0] * 4)]
    unnamed = [(Image.new("RGB", (8, 8)), 0)]

    with pytest.raises(DatasetError, match="give all parts the attribute `classes`"):
        open_images(ConcatDataset([*folders, unnamed]), DatasetOptions())


def test_labels_of_a_part_are_read_of_its_elements_alone() -> None:
    class Unread(Folder):
        def __getitem__(self, position: int) -> tuple[Image.Image, int]:
            assert position == 2
            return super().__getitem__(position)

    assert names_of(Subset(Unread(["cat", "dog"], map(int, "0110")), [2])) == ["dog"]


def test_transformed_targets_do_not_take_the_names_of_the_others() -> None:
    folder = Folder(["cat", "dog"], [0, 1, 1, 0])
    folder.target_transform = lambda target: 1 - target  # type: ignore[attr-defined]

    assert names_of(folder) == ["0", "1", "1", "0"]


@pytest.mark.parametrize("targets", [None, 7, np.array(3), {"a": 1}])
def test_targets_that_are_no_list_of_labels_are_not_read(targets: object) -> None:
    class Labelled(Folder):
        def __getitem__(self, position: int) -> tuple[Image.Image, int]:
            return Image.new("RGB", (8, 8)), position % 2

    assert names_of(Labelled(["cat", "dog"], targets)) == ["cat", "dog", "cat", "dog"]


@pytest.mark.parametrize("is_split", [False, True])
def test_streamed_datasets_are_answered_by_a_line_that_works(*, is_split: bool) -> None:
    pixels = [Image.new("RGB", (8, 8), (20 * row, 0, 0)) for row in range(4)]
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    held = datasets.Dataset.from_dict({"image": pixels, "label": [0, 1, 1, 0]}, features=features)
    rows = held.to_iterable_dataset()
    images = datasets.IterableDatasetDict({"train": rows}) if is_split else rows

    with pytest.raises(DatasetError, match=r"streamed.*`streaming=True`") as caught:
        open_images(images, DatasetOptions())

    line = str(caught.value).rpartition("by `")[2].strip("`")
    assert names_of(eval(line, {"datasets": datasets, "rows": rows})) == [  # noqa: S307
        *("cat", "dog", "dog", "cat")
    ]


def test_negative_labels_in_memory_are_none() -> None:
    pairs = [(Image.new("RGB", (8, 8)), label) for label in (3, -1, 5000)]

    dataset, warnings = open_images(pairs, DatasetOptions())

    assert dataset.class_names == ("3", "5000")
    assert warnings == ["1 of 3 images are left out: they have no label"]
