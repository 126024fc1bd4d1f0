"""COCO without boxes: annotations that give images a category, as iNaturalist and camera traps do.

The samples are the images then, with the paths of their files as ids. An image with several
categories has no label, but `tags`.
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

_SHOWN = 3


def open_labels(
    location: str,
    options: DatasetOptions,
    images: Sequence[BoxedImage],
    categories: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    skipped: Sequence[Skipped],
) -> Dataset:
    """The images of a file, each with the category of its annotations.

    Args:
        pairs: Place of the image and of the category of each annotation.
        skipped: What is no image, and annotations of none.
    """
    names = distinct_names(categories)
    found = defaultdict[int, set[int]](set)
    for row, label in pairs:
        found[row].add(label)
    rows = list(range(len(images)))
    left = [*skipped]
    if not options.unlabelled:
        rows = [row for row in rows if len(found[row]) == 1]
        left += [
            (as_text(image.name), _reason(found, row, names))
            for row, image in enumerate(images)
            if len(found[row]) != 1
        ]
    labels = [0 if options.unlabelled else min(found[row]) for row in rows]
    kept = [images[row] for row in rows]
    listing = Listing(
        (UNLABELLED,) if options.unlabelled else names,
        [as_text(image.name) for image in kept],
        np.array(labels, np.int32),
        np.array([image.size for image in kept], np.int64),
        ("labels",),
        left,
        ("no annotation has a box: the images are the samples, with the categories as labels",),
    )
    open_at = partial(_open_at, [image.open for image in kept])
    return build_dataset(location, options, listing, open_at, lambda row: repr(kept[row].name))


def _reason(found: Mapping[int, set[int]], row: int, names: Sequence[str]) -> str:
    if not found[row]:
        return "it has no annotation"
    several = list_names([names[label] for label in sorted(found[row])], _SHOWN)
    return f"it has several categories, as tags are: {several}"


def _open_at(openers: Sequence[ImageOpener], positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
    return map(openers.__getitem__, positions.tolist())
