"""The interface of all backbones, and the options that one is built with."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from difficulty_service.base.errors import BackboneError, Setting


@dataclass(frozen=True)
class Preprocessing:
    """How an image is resized to the square uint8 input of a backbone, and normalised.

    Attributes:
        size: Side of the square input, in pixels.
        resize: Length of the shorter side after the resize and before the centre crop, in pixels.
        interpolation: `bicubic` or `bilinear`, always with antialiasing.
        mean: Mean of each channel, for values in [0, 1].
        std: Standard deviation of each channel, for values in [0, 1].
    """

    size: int
    resize: int
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def describe(self) -> dict[str, object]:
        """The fields as JSON values, for provenance."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


@dataclass(frozen=True)
class TextPreprocessing:
    """How a text becomes the numbers that an encoder of texts takes.

    Attributes:
        size: Number of tokens of the longest text, the work of one forward pass; 1 for none.
        prepare: Function from a text to its numbers, of the same shape for every text.
        settings: JSON values by which the features are recognised.
    """

    size: int
    prepare: Callable[[str], Tensor]
    settings: Mapping[str, object]

    def describe(self) -> dict[str, object]:
        """The settings, for provenance."""
        return dict(self.settings)


class Backbone(Protocol):
    """A frozen pretrained encoder, in eval mode on its device.

    Attributes:
        name: Name under which the user selects it.
        feature_dim: Length of a feature vector.
        weights_sha256: Hex SHA-256 of the weights file.
        one_core: Whether it encodes on the core of the calling thread alone, so that on a CPU
            several threads call it at once.
    """

    name: str
    feature_dim: int
    weights_sha256: str
    one_core: bool

    @property
    def preprocessing(self) -> Preprocessing | TextPreprocessing:
        """Preprocessing of its input, which says whether its samples are images or texts."""

    def encode(self, samples: Tensor, /) -> Tensor:
        """Features of prepared samples.

        Args:
            samples: Normalised images on the backbone's device, shape (samples, 3, size, size); or
                prepared texts, shape (samples, length).

        Returns:
            Shape (samples, feature_dim), float32.
        """
        ...


@dataclass(frozen=True)
class BackboneOptions:
    """Options of a backbone.

    Attributes:
        weights: Path of a weights file; None to use the cache of the hub or to download.
        features: `penultimate` (before any projection) or `projected` (CLIP's shared space).
        device: Device that runs the network.
        precision: dtype of the network's parameters and inputs.
        flip: Whether features are the mean of those of the image and of its mirror image.
        random: Whether the network has random weights, which are as fast as its own and need no
            file; for measurements only.
    """

    weights: str | None = None
    features: str = "penultimate"
    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32
    flip: bool = False
    random: bool = False

    def describe(self) -> dict[str, Any]:
        """JSON values of what features depend on, for provenance."""
        dtype = str(self.precision).removeprefix("torch.")
        return {"features": self.features, "precision": dtype, "flip": self.flip}

    @classmethod
    def as_described(cls, features: object, device: torch.device) -> Self:
        """Options for features such as those of a description, which has the keys of `describe`."""
        known = {name: getattr(features, name) for name in cls().describe()}
        known["precision"] = getattr(torch, str(known["precision"]))
        known = {name: value for name, value in known.items() if value is not None}
        return cls(device=device, **known)

    @property
    def given(self) -> list[str]:
        """Names of the options, beside the machine's, that are not the usual ones."""
        machine = ("device", "precision", "random")
        return [
            field.name
            for field in fields(self)
            if field.name not in machine and getattr(self, field.name) != field.default
        ]


def image_preprocessing(backbone: Backbone) -> Preprocessing:
    """The preprocessing of a backbone; BackboneError where its samples are texts."""
    if isinstance(backbone.preprocessing, TextPreprocessing):
        raise BackboneError(
            f"{backbone.name} encodes texts, and here are images", parameter="backbone"
        )
    return backbone.preprocessing


def no_projection(name: str) -> BackboneError:
    """The error when a backbone without a projection is to return projected features."""
    return BackboneError(
        f"{name} has no projection",
        "use ",
        Setting("features", "penultimate"),
        parameter="features",
    )


def choose_device(name: str) -> torch.device:
    """The device with this name; for `auto` a GPU if there is one, otherwise the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BackboneError(
            f"device {name!r} cannot be used here: {reason}", parameter="device"
        ) from None
    return device


PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Precisions of a network by their names; beside them `auto` is the one that suits a device."""


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The precision of a name of `PRECISIONS`, or for `auto` the one that suits a device."""
    return best_precision(device) if name == "auto" else PRECISIONS[name]


def best_precision(device: torch.device) -> torch.dtype:
    """bf16 on a GPU with the hardware for it, otherwise fp32."""
    recent = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if recent else torch.float32
