"""The labels of pairs of images and labels, and the names that datasets of torch give them.

Labels are read without images where a dataset has them in `targets`, as those of torchvision do,
also below `Subset` and `ConcatDataset`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from difficulty_service.base.errors import DatasetError
from difficulty_service.features.array_columns import ClassLabels, index_classes
from difficulty_service.interface.arrays import to_column

PAIR = 2


@dataclass(frozen=True)
class _Targets:
    """A label for each sample, and the names of 0, 1, 2, ...; empty where there are none."""

    labels: Sequence[object]
    names: tuple[str, ...]


def classes_of_pairs(pairs: Any) -> ClassLabels:  # noqa: ANN401
    """The classes of pairs, by their names where these are known.

    Raises:
        DatasetError: An element is no pair, labels are of no kind that labels have, or the parts
            of a `ConcatDataset` cannot be matched by the names of their classes.
    """
    found = _targets(pairs, range(len(pairs)))
    column = to_column(found.labels, "labels")
    if not found.names:
        return index_classes(column)
    numbers = index_classes(column)
    are_places = all(name.isdecimal() and int(name) < len(found.names) for name in numbers.names)
    if not are_places:
        return numbers
    names = tuple(found.names[int(name)] for name in numbers.names)
    return ClassLabels(names, numbers.indices, numbers.notes)


def _targets(pairs: Any, places: Sequence[int]) -> _Targets:  # noqa: ANN401
    """The targets at some places."""
    if isinstance(pairs, Subset):
        return _targets(pairs.dataset, [int(pairs.indices[place]) for place in places])
    if isinstance(pairs, ConcatDataset):
        return _of_parts(pairs, places)
    names = getattr(pairs, "classes", None)
    if getattr(pairs, "target_transform", None) is None:
        known = names if isinstance(names, list | tuple) else ()
        targets = _given(getattr(pairs, "targets", None), len(pairs))
        if targets is not None:
            return _Targets([targets[place] for place in places], tuple(map(str, known)))
    else:
        known = ()  # the names are those of the labels before they are transformed
    labels = [_label(pairs[place], place) for place in places]
    return _Targets(labels, tuple(map(str, known)))


def _given(targets: Any, number: int) -> Sequence[object] | None:  # noqa: ANN401
    """The targets of a dataset, unless they are something else of that name."""
    try:
        fits = targets is not None and len(targets) == number
    except TypeError:  # no length, as of a number or of what yields labels
        return None
    if not fits or isinstance(targets, dict | str):
        return None
    column = to_column(targets, "labels")
    labels: Sequence[object] = column.to_pylist()
    return labels


def _of_parts(pairs: ConcatDataset[Any], places: Sequence[int]) -> _Targets:
    ends = np.array(pairs.cumulative_sizes)
    inside = np.array(places, np.int64) % max(len(pairs), 1)
    part_of = np.searchsorted(ends, inside, side="right")
    starts = [0, *ends.tolist()]
    parts = [
        _targets(part, (inside[part_of == number] - starts[number]).tolist())
        for number, part in enumerate(pairs.datasets)
    ]
    joined = _joined(parts)
    order = np.argsort(np.argsort(part_of, kind="stable"), kind="stable")
    return _Targets([joined.labels[place] for place in order.tolist()], joined.names)


def _joined(parts: Sequence[_Targets]) -> _Targets:
    """The targets of several datasets, whose numbers are made those of the same names."""
    labels = [label for part in parts for label in part.labels]
    named = {part.names for part in parts if part.names}
    if len(named) <= 1:
        # What has no names counts as its loader would: by the same numbers.
        return _Targets(labels, next(iter(named), ()))
    if not all(part.names for part in parts):
        raise DatasetError(
            "the parts of the ConcatDataset have different `classes`, and some have none, so their "
            "labels cannot be matched",
            "give all parts the attribute `classes`, the names of 0, 1, 2, ..., or score them one "
            "by one",
            parameter="images",
        )
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    place = {name: number for number, name in enumerate(names)}
    return _Targets(
        [_renamed(label, part.names, place) for part in parts for label in part.labels], names
    )


def _renamed(label: object, names: Sequence[str], place: dict[str, int]) -> object:
    """The number of a label in another list of names."""
    number = np.asarray(label).item() if hasattr(label, "__array__") else label
    if number is None or (isinstance(number, int) and number < 0):
        return number
    if not isinstance(number, int) or number >= len(names):
        raise DatasetError(
            f"a part of the ConcatDataset has the label {number!r}, and {len(names):,} `classes`",
            "labels are the places of their classes",
            parameter="images",
        )
    return place[names[number]]


def _label(pair: Any, position: int) -> object:  # noqa: ANN401
    if not isinstance(pair, list | tuple) or len(pair) != PAIR:
        raise DatasetError(
            f"element {position} is {type(pair).__name__}, expected a pair of an image and a label",
            "pass `score_dataset(images, labels)`, or `list(zip(images, labels))`",
            parameter="images",
        )
    if isinstance(pair[1], Image.Image):
        raise DatasetError(
            f"element {position} has its image in the second place",
            "pass pairs of an image and a label, in this order",
            parameter="images",
        )
    return pair[1]
