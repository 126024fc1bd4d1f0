"""Decisions about the tags of images, as the samples of a dataset.

A decision is whether an image has a tag. Its id is `image#tag`, its class the tag or, where the
image does not have it, `not` and the tag. Its image is that of the dataset.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.datasets.tags.revising import Edits

WITHOUT = "not "
"""What the class of images without a tag begins with."""


def class_names(tags: Sequence[str]) -> tuple[str, ...]:
    """The classes of decisions: with each tag, then without each.

    Raises:
        DatasetError: A tag is called as the absence of another one.
    """
    without = [f"{WITHOUT}{tag}" for tag in tags]
    both = sorted({*tags}.intersection(without))
    if both:
        raise DatasetError(
            f"the tag {both[0]!r} is called as images without {both[0][len(WITHOUT) :]!r} are",
            "rename it",
        )
    return (*tags, *without)


def decision_id(image: str, tag: str) -> str:
    """The id of the decision about a tag of an image."""
    return f"{image}#{tag}"


def possible_images(decision: str, tags: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each image and tag that the id of a decision may be of: both may have a # themselves."""
    place = decision.rfind("#")
    while place >= 0:
        image, tag = decision[:place], decision[place + 1 :]
        if tag in tags:
            yield image, tag
        place = decision.rfind("#", 0, place)


def split_id(
    decision: str, images: Collection[str], tags: Collection[str]
) -> tuple[str, str] | None:
    """Image and tag of a decision; None where there is no such image or tag."""
    return next((each for each in possible_images(decision, tags) if each[0] in images), None)


def dataset_of_decisions(dataset: Dataset, ids: Sequence[str], tags: Sequence[str]) -> Dataset:
    """Some decisions about the images of a dataset, by their ids, in its order.

    Those whose image is gone are left out.
    """
    places = {image: place for place, image in enumerate(dataset.sample_ids)}
    known = set(tags)
    pairs = [split_id(each, places, known) for each in ids]
    found = [
        (places[pair[0]], each) for each, pair in zip(ids, pairs, strict=True) if pair is not None
    ]
    found.sort(key=lambda each: each[0])
    return replace(
        dataset,
        class_names=class_names(tags),
        sample_ids=[each for _, each in found],
        labels=np.zeros(len(found), np.int32),
        open_images=partial(_open, dataset, np.array([place for place, _ in found], np.int64)),
        revise=None,
    )


def _open(
    dataset: Dataset, places: NDArray[np.int64], positions: Sequence[int]
) -> Iterator[ImageOpener]:
    """Opens the image of each decision, each image once."""
    wanted = places[np.asarray(positions, np.int64)]
    distinct, numbers = np.unique(wanted, return_counts=True)
    openers = dataset.open_images(distinct.tolist())
    for opener, number in zip(openers, numbers.tolist(), strict=True):
        for _ in range(number):
            yield opener


@dataclass(frozen=True)
class RowChanges:
    """What decisions change in a table of tags.

    Attributes:
        refused: Decisions that name a class which does not decide about their tag, with the class.
        unknown: Decisions about images or tags that are not there.
    """

    edits: Edits
    refused: Sequence[str]
    unknown: Sequence[str]


def row_changes(
    changes: Mapping[str, str | None],
    rows: Mapping[str, int],
    tags: Collection[str],
    can_have: Collection[str] | None = None,
) -> RowChanges:
    """The edits that decisions mean.

    A class is the tag, `not` and the tag, or another tag, which takes its place; None takes the
    image out.

    Args:
        changes: New class of each decision.
        rows: Row of each image.
        can_have: Tags that a row can have; None for any.
    """
    edits = defaultdict[int, dict[str, bool]](dict)
    gone, refused, unknown = set[int](), list[str](), list[str]()
    for decision, label in changes.items():
        pair = split_id(decision, rows, tags)
        if pair is None:
            unknown.append(decision)
            continue
        row, tag = rows[pair[0]], pair[1]
        if label is None:
            gone.add(row)
        elif label in {tag, f"{WITHOUT}{tag}"}:
            edits[row][tag] = label == tag
        elif (label.startswith(WITHOUT) and label not in tags) or (
            can_have is not None and label not in can_have
        ):
            refused.append(f"{decision} ({label})")
        else:
            edits[row] |= {tag: False, label: True}
    return RowChanges({**edits, **dict.fromkeys(gone)}, refused, unknown)
