"""The formats in which datasets are read, and what is said of one before it is read."""

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from difficulty_service.base.contract import Found
from difficulty_service.base.wording import did_you_mean

DATASET_FORMATS = {
    "image-folder": "one folder per class",
    "table": "a table",
    "webdataset": "WebDataset tar shards",
    "archive": "an archive with one folder per class",
    "hugging-face": "a Hugging Face dataset",
    "plug-in": "a dataset of another package",
    "yolo": "boxes in YOLO's format",
    "coco": "boxes in COCO's format",
    "voc": "boxes in Pascal VOC's format",
    "label-studio": "boxes of Label Studio",
    "cvat": "boxes of CVAT",
    "labelme": "boxes of LabelMe",
    "supervisely": "boxes of Supervisely",
    "createml": "boxes of CreateML",
    "box-table": "a table of boxes",
    "cifar": "CIFAR as published",
    "cifar-c": "CIFAR-C as published",
    "svhn": "SVHN as published",
    "idx": "MNIST, or its like, as published",
    "tiny-imagenet": "Tiny ImageNet as published",
    "imagenet-validation": "the validation images of ImageNet as published",
}
"""What a person calls each of them."""


def known_format(name: str) -> str:
    """The name of a format of datasets.

    Raises:
        ValueError: There is no such format.
    """
    if name not in DATASET_FORMATS:
        raise ValueError(
            f"{name!r} is no format; {did_you_mean(name, DATASET_FORMATS)}expected one of "
            f"{', '.join(DATASET_FORMATS)}"
        )
    return name


Format = Annotated[
    str,
    AfterValidator(known_format),
    WithJsonSchema({"type": "string", "enum": list(DATASET_FORMATS)}),
]


class ClassSize(Found):
    """A class, and how many samples it has."""

    name: str
    num_samples: int


class LeftOut(Found):
    """Entries that would not be read, for one reason."""

    reason: str
    entries: int
    """How many they are."""
    examples: tuple[str, ...]
    """The first of them."""


class DatasetPreview(Found):
    """What would be read of a dataset."""

    format: str
    """Name of the format, as for the option of this name."""
    title: str
    """The same in words."""
    split: str | None
    """Split that was chosen."""
    noun: str
    """What a sample is: image, text or object."""
    num_samples: int
    """Number of samples, without those that cannot be images by their names."""
    num_classes: int
    """Number of classes with samples; 0 where there are no labels."""
    classes: tuple[ClassSize, ...]
    """The classes with samples, or the first of them, in their order."""
    left_out: tuple[LeftOut, ...]
    """What would not be read."""
    notes: tuple[str, ...]
    """What was assumed, a sentence each."""
