"""Whole images as samples, where annotations have no box but say a class of the image.

So do those of COCO by iNaturalist and camera traps, in which an image with several categories has
no label, but `tags`, and the flags of LabelMe. Ids are the paths of the files.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.wording import list_names
from difficulty_service.datasets.listing import Listing, as_text, build_dataset
from difficulty_service.datasets.objects.boxes import BoxedImage, distinct_names
from difficulty_service.datasets.sample import (
    UNLABELLED,
    Dataset,
    DatasetOptions,
    ImageOpener,
    Skipped,
)

NOTES = {
    "labels": "no annotation has a box: the images are the samples, with the categories as labels",
    "flags": "no image has a shape: the images are the samples, and their flags the labels",
}
"""What is told of each kind of labels of images."""

_SHOWN = 3


def build_images(
    location: str,
    options: DatasetOptions,
    names: Sequence[str],
    labelled: Sequence[tuple[BoxedImage, int]],
    kind: str,
    skipped: Sequence[Skipped],
) -> Dataset:
    """The dataset of images, each with the place of its class in `names`.

    Args:
        kind: A key of NOTES.
        skipped: What is no sample.
    """
    images = [image for image, _ in labelled]
    listing = Listing(
        tuple(names),
        [as_text(image.name) for image in images],
        np.array([label for _, label in labelled], np.int32),
        np.array([image.size for image in images], np.int64),
        (kind,),
        skipped,
        (NOTES[kind],),
    )
    open_at = partial(_open_at, [image.open for image in images])
    return build_dataset(location, options, listing, open_at, lambda row: repr(images[row].name))


def _open_at(openers: Sequence[ImageOpener], positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
    return map(openers.__getitem__, positions.tolist())


def open_labels(
    location: str,
    options: DatasetOptions,
    images: Sequence[BoxedImage],
    categories: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    skipped: Sequence[Skipped],
) -> Dataset:
    """The images of a file of COCO, each with the category of its annotations.

    Args:
        pairs: Place of the image and of the category of each annotation.
        skipped: What is no image, and annotations of none.
    """
    names = distinct_names(categories)
    found = defaultdict[int, set[int]](set)
    for row, label in pairs:
        found[row].add(label)
    if options.unlabelled:
        every = [(image, 0) for image in images]
        return build_images(location, options, (UNLABELLED,), every, "labels", skipped)
    labelled, left = list[tuple[BoxedImage, int]](), [*skipped]
    for row, image in enumerate(images):
        if len(found[row]) == 1:
            labelled.append((image, min(found[row])))
        else:
            left.append((as_text(image.name), _reason(found, row, names)))
    return build_images(location, options, names, labelled, "labels", left)


def _reason(found: Mapping[int, set[int]], row: int, names: Sequence[str]) -> str:
    if not found[row]:
        return "it has no annotation"
    several = list_names([names[label] for label in sorted(found[row])], _SHOWN)
    return f"it has several categories, as tags are: {several}"
