"""The parts of a recipe that a program passes as objects, and the names they have in it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from difficulty_service.errors import ConfigError, DatasetError
from difficulty_service.interface.labelled_arrays import read_arrays
from trainer.own_code import OBJECT_PREFIX, is_object, name_of

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


def put_into(values: dict[str, Any], parts: Parts) -> dict[str, Any]:
    """Names the parts in the values of a recipe.

    Args:
        values: Values of a recipe, which are changed.
        parts: Parts to use.

    Returns:
        Objects by their name in the recipe, for `trainer.own_code.known_objects`.

    Raises:
        ConfigError: The datasets are of different kinds, or the recipe asks for what an object
            cannot do.
        DatasetError: Arrays do not fit together.
    """
    objects: dict[str, Any] = {}
    for table in ("model", "loss"):
        own = getattr(parts, table)
        if own is not None:
            name = own if isinstance(own, str) else name_of(own, table)
            values[table] = {"name": name}
            objects |= {name: own} if is_object(name) else {}
    data = values.setdefault("data", {})
    held = {}
    for field in fields(parts)[2:]:
        value = getattr(parts, field.name)
        if value is None:
            continue
        if isinstance(value, str | os.PathLike | float | int):
            data[field.name] = value if isinstance(value, float | int) else os.fspath(value)
        else:
            name = data[field.name] = f"{OBJECT_PREFIX}{field.name}"
            objects[name], held[field.name] = _open(value, field.name)
    _set_kind(data, held)
    return objects


def _open(value: Data, name: str) -> tuple[Any, str]:
    """The object to hold, and the kind of its samples."""
    if isinstance(value, tuple) and len(value) in {PAIR, TRIPLE} and hasattr(value[0], "shape"):
        if len(value[0].shape) == FEATURE_DIMENSIONS:
            return read_arrays(value[0], value[1], value[2] if len(value) == TRIPLE else None), (
                "features"
            )
        if len(value) == PAIR:
            if len(value[0]) != len(value[1]):
                raise DatasetError(
                    f"{name}: {len(value[0]):,} images but {len(value[1]):,} labels",
                    parameter=name,
                )
            return ImageRows(*value), "images"
    return value, "images"


def _set_kind(data: dict[str, Any], held: Mapping[str, str]) -> None:
    """Sets the kind of the samples and where images are kept, which follow from the objects."""
    kinds = set(held.values())
    if len(kinds) > 1:
        raise ConfigError(
            f"the datasets hold different kinds of samples: {dict(held)}",
            "pass arrays of features for all of them, or images for all of them",
        )
    if not kinds:
        return
    data["kind"] = kinds.pop()
    if data["kind"] == "images" and data.setdefault("in_memory", True) is False:
        raise ConfigError(
            "data.in_memory = false, and images of a program are decoded once and kept in memory",
            "leave it out, or pass the location of the images",
        )
