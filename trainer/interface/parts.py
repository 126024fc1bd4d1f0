"""The parts of a recipe that a program passes as objects, and the names they have in it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from difficulty_service.errors import ConfigError, DatasetError
from difficulty_service.interface.labelled_arrays import read_arrays
from trainer.own_code import OBJECT_PREFIX, is_object, name_of
from trainer.recipes.overrides import Change

FEATURE_DIMENSIONS = 2
PAIR, TRIPLE = 2, 3

Data = Any
"""A location; a tuple of features, labels and perhaps ids; a tuple of an array of images and their
labels; or labelled images as `difficulty_service.score_dataset` takes them."""

Model = nn.Module | Callable[..., nn.Module] | str
Loss = Callable[..., Any] | str


@dataclass(frozen=True)
class Parts:
    """Parts of a recipe that replace what it names; None keeps that.

    Attributes:
        model: Network, function or class that makes one, or name.
        loss: Function, class, object or name.
        train: Training data.
        validation: Validation data, or the fraction to hold out.
        test: Test data.
    """

    model: Model | None = None
    loss: Loss | None = None
    train: Data = None
    validation: Data = None
    test: Data = None


@dataclass(frozen=True)
class ImageRows:
    """An array of images and their labels as a collection of pairs.

    Attributes:
        images: uint8: an array of shape (samples, height, width, 3), or a tensor of shape (samples,
            3, height, width).
        labels: Labels. Shape (samples,).
    """

    images: Any
    labels: Any

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Any, Any]:
        """One image and its label."""
        return self.images[position], self.labels[position]


def name_parts(parts: Parts) -> tuple[list[Change], dict[str, Any]]:
    """Names the parts, so that a recipe can refer to them.

    Args:
        parts: Parts to use.

    Returns:
        Changes of the recipe, and objects by their name in it for
        `trainer.own_code.known_objects`.

    Raises:
        ConfigError: The datasets are of different kinds.
        DatasetError: Arrays do not fit together.
    """
    changes: list[Change] = []
    objects: dict[str, Any] = {}
    for table in ("model", "loss"):
        own = getattr(parts, table)
        if own is not None:
            name = own if isinstance(own, str) else name_of(own, table)
            changes.append(([table, "name"], name))
            objects |= {name: own} if is_object(name) else {}
    kinds = {}
    for split in ("train", "validation", "test"):
        value = getattr(parts, split)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if value is not None and not isinstance(value, str | float | int):
            name = f"{OBJECT_PREFIX}{split}"
            objects[name], kinds[split] = _open(value, split)
            value = name
        if value is not None:
            changes.append((["data", split], value))
    return changes + _kind_of(kinds), objects


def _open(value: Data, split: str) -> tuple[Any, str]:
    """The object to hold, and the kind of its samples."""
    is_arrays = isinstance(value, tuple) and len(value) in {PAIR, TRIPLE}
    if not is_arrays or not hasattr(value[0], "shape"):
        return value, "images"
    if len(value[0].shape) == FEATURE_DIMENSIONS:
        return read_arrays(
            value[0], value[1], value[2] if len(value) == TRIPLE else None
        ), "features"
    if len(value) != PAIR or len(value[0]) != len(value[1]):
        raise DatasetError(
            f"{split} is a tuple of {', '.join(f'{len(each):,}' for each in value)} entries",
            "pass a tuple of images and as many labels",
            parameter=split,
        )
    return ImageRows(*value), "images"


def _kind_of(kinds: Mapping[str, str]) -> list[Change]:
    """Changes of the keys that follow from the objects: the kind, and where images are kept."""
    if len(set(kinds.values())) > 1:
        raise ConfigError(
            "the datasets are of different kinds: "
            + ", ".join(f"{split} holds {kind}" for split, kind in kinds.items()),
            "pass arrays of features for all of them, or images for all of them",
        )
    kind = next(iter(kinds.values()), None)
    # Worker processes, which decode images that are not kept in memory, cannot see the objects.
    in_memory: list[Change] = [(["data", "in_memory"], True)] if kind == "images" else []
    return in_memory if kind is None else [(["data", "kind"], kind), *in_memory]
