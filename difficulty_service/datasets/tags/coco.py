"""Tags of images in the format of COCO: annotations with an image and a category, and no box.

What is written back is the same text but for the annotations that somebody decided about.
"""

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.json_spans import removals
from difficulty_service.datasets.objects.boxes import distinct_names, edited
from difficulty_service.datasets.objects.coco import CocoText, name_of_file, read_coco
from difficulty_service.datasets.storage import StoredPath


def read_coco_tags(
    place: StoredPath,
) -> tuple[list[str], tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    """Names of the images, names of the tags, and the image and the tag of each annotation.

    Raises:
        DatasetError: The file is damaged, or an annotation has a box, or no image or category.
    """
    read = read_coco(place, place.name)
    boxes = [number for number, each in enumerate(read.annotations) if each[3]]
    if boxes:
        raise DatasetError(
            f"annotation {read.annotations[boxes[0]][0]} of {place.name!r} has a box, and tags are "
            "about whole images",
            "score boxes with `difficulty score`",
            parameter="tags",
        )
    rows, tags = _places(read, place)
    return _image_names(read, place), _tag_names(read), np.array(rows), np.array(tags)


def _image_names(read: CocoText, place: StoredPath) -> list[str]:
    names = list(map(name_of_file, read.images))
    if None in names:
        number = names.index(None)
        raise DatasetError(f"image {number} of {place.name!r} has no file_name", "write one")
    return [str(name) for name in names]


def _tag_names(read: CocoText) -> tuple[str, ...]:
    return distinct_names([name for _, name in read.categories])


def _places(read: CocoText, place: StoredPath) -> tuple[list[int], list[int]]:
    """Place of the image and of the category of each annotation."""
    images = {str(image.get("id")): row for row, image in enumerate(read.images)}
    categories = {str(key): row for row, (key, _) in enumerate(read.categories)}
    rows, tags = [], []
    for key, image, category, *_ in read.annotations:
        if str(image) not in images or str(category) not in categories:
            raise DatasetError(
                f"annotation {key} of {place.name!r} is of an image or a category that is missing",
                "correct it, or take it out",
            )
        rows.append(images[str(image)])
        tags.append(categories[str(category)])
    return rows, tags


def revised_coco(
    place: StoredPath, edits: Sequence[tuple[int, str, bool]], gone: Sequence[int]
) -> bytes:
    """The text of a file after edits.

    Args:
        edits: Number of an image, name of a tag, and whether the image has it from now on.
        gone: Numbers of images that are taken out.
    """
    read = read_coco(place, place.name)
    rows, tags = _places(read, place)
    pairs = list(zip(rows, tags, strict=True))
    known = set(pairs)
    names = {name: tag for tag, name in enumerate(_tag_names(read))}
    wanted = {(row, names[name]): has for row, name, has in edits}
    removed = {
        number
        for number, pair in enumerate(pairs)
        if not wanted.get(pair, True) or pair[0] in set(gone)
    }
    added = [
        pair for pair, has in wanted.items() if has and pair not in known and pair[0] not in gone
    ]
    changes = removals(read.spans, removed) if removed else []
    changes += removals(read.image_spans, set(gone)) if gone else []
    if added:
        numbers = [key for key, *_ in read.annotations if isinstance(key, int)]
        first = max(numbers, default=0) + 1
        texts = [
            json.dumps(
                {
                    "id": first + number,
                    "image_id": read.images[row].get("id"),
                    "category_id": read.categories[tag][0],
                },
                ensure_ascii=False,
            )
            for number, (row, tag) in enumerate(added)
        ]
        start, end = read.lists["annotations"]
        at = start + 1 + len(read.text[start + 1 : end - 1].rstrip())
        separator = ", " if len(removed) < len(pairs) else ""
        changes.append((at, at, separator + ", ".join(texts)))
    return edited(read.text, changes).encode()
