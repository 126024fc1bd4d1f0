"""The interface of all backbones, and the options that one is built with."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor

from difficulty_service.backbones.downloads import DEFAULT_DOWNLOADS, Downloads
from difficulty_service.base.devices import has_gpu, problem_of
from difficulty_service.base.errors import BackboneError, DeviceError, Setting
from difficulty_service.base.processors import computes_in_bfloat16

Size = int | tuple[int, int]
"""Side of a square in pixels, or height and width of another rectangle."""

Fit = Literal["crop", "squash", "border"]
"""How images of any shape come to that of the input; see `Preprocessing.fit`."""

INTERPOLATIONS = ("bicubic", "bilinear")
"""Interpolations of a resize."""

NO_FILL = (0, 0, 0)
"""Black, for images that need no border."""


@dataclass(frozen=True)
class Preprocessing:
    """How an image is resized to the uint8 input of a backbone, and normalised.

    Attributes:
        size: Size of the input, which is the centre of the resized image.
        resize: Rectangle that `fit` resizes an image for, before the centre is taken.
        interpolation: `bicubic` or `bilinear`, always with antialiasing.
        mean: Mean of each channel, for values in [0, 1].
        std: Standard deviation of each channel, for values in [0, 1].
        fit: With `crop` an image keeps its shape and just covers `resize`; with `border` it keeps
            its shape and just lies inside; with `squash` it gets exactly that size.
        fill: Red, green and blue, in [0, 255], of what surrounds an image that has a border.
    """

    size: Size
    resize: Size
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    fit: Fit = "crop"
    fill: tuple[int, int, int] = NO_FILL

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the input in pixels."""
        return height_and_width(self.size)

    def describe(self) -> dict[str, object]:
        """The fields as JSON values, for provenance; `fit` and `fill` where they matter."""
        values = asdict(self)
        if self.fit == "crop":
            del values["fit"]
        if self.fit != "border":
            del values["fill"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def height_and_width(size: Size) -> tuple[int, int]:
    """Both sides of a size."""
    return (size, size) if isinstance(size, int) else size


def size_of_sides(height: int, width: int) -> Size:
    """The size with these sides: one number where they are equal."""
    return height if height == width else (height, width)


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
            samples: Normalised images on the backbone's device, shape (samples, 3, height, width);
                or prepared texts on the CPU, shape (samples, length).

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
        precision: dtype of the network's parameters and inputs; torch.int8 for weights and
            activations of eight bits, whose inputs are float32.
        flip: Whether features are the mean of those of the image and of its mirror image.
        image_size: Side of the square input in pixels, in place of the network's own; None for
            that. The preprocessing of the backbone has the side that it takes.
        random: Whether the network has random weights, which are as fast as its own and need no
            file; for measurements only.
        downloads: How weights that are not on this machine are downloaded; changes no feature.
    """

    weights: str | None = None
    features: str = "penultimate"
    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32
    flip: bool = False
    image_size: int | None = None
    random: bool = False
    downloads: Downloads = field(default=DEFAULT_DOWNLOADS, compare=False, repr=False)

    @property
    def input_precision(self) -> torch.dtype:
        """Dtype of the network's inputs."""
        return torch.float32 if self.precision == torch.int8 else self.precision

    def describe(self) -> dict[str, Any]:
        """JSON values of what features depend on, for provenance."""
        dtype = str(self.precision).removeprefix("torch.")
        return {"features": self.features, "precision": dtype, "flip": self.flip}

    @classmethod
    def as_described(cls, features: object, device: torch.device) -> Self:
        """Options for features such as those of a description.

        It has the keys of `describe`, and `preprocessing`, of which the size is that of the input.
        An input that is not square is always the network's own.
        """
        known = {name: getattr(features, name) for name in cls().describe()}
        known["precision"] = getattr(torch, str(known["precision"]))
        known = {name: value for name, value in known.items() if value is not None}
        size = (getattr(features, "preprocessing", None) or {}).get("size")
        return cls(device=device, image_size=size if isinstance(size, int) else None, **known)

    @property
    def given(self) -> list[str]:
        """Names of the options, beside the machine's, that are not the usual ones."""
        machine = ("device", "precision", "random", "downloads")
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


def require_size(name: str, own: Size, options: BackboneOptions) -> None:
    """Refuses another input than the one that a network takes."""
    if options.image_size not in {None, own}:
        raise takes_only(name, own)


def takes_only(name: str, own: Size) -> BackboneError:
    """The error when a network takes its own input only."""
    if isinstance(own, int):
        return wrong_size(f"{name} takes images of {own} pixels only", own)
    height, width = own
    return wrong_size(f"{name} takes images {height} pixels high and {width} wide only")


def require_multiple(name: str, size: int, patch: int) -> None:
    """Refuses an input that patches of this many pixels do not fill."""
    if size % patch:
        problem = f"{name} takes images of a multiple of {patch} pixels, and {size} is none"
        raise wrong_size(problem, max(1, round(size / patch)) * patch)


def wrong_size(problem: str, remedy: int | None = None) -> BackboneError:
    """The error when a network does not take the input that was asked for."""
    setting = Setting("image_size", remedy)
    start = "leave out " if remedy is None else "use "
    return BackboneError(problem, start, setting, parameter="image_size")


EVERY_GPU = "all"
"""Name of all GPUs of a machine, which an extraction may share."""


def choose_device(name: str) -> torch.device:
    """The device with this name; for `auto` a GPU that computes, otherwise the CPU.

    Raises:
        DeviceError: The device is not there, or cannot compute.
    """
    if name == "auto":
        if has_gpu():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if (problem := problem_of(name)) is not None:
        raise DeviceError(f"device {name!r} cannot be used here: {problem}", parameter="device")
    return torch.device(name)


PRECISIONS = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
}
"""Precisions of a network by their names; beside them `auto` is what a comparison chooses."""


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The precision of a name of `PRECISIONS`; of `auto`, float32, until a comparison says more.

    Raises:
        BackboneError: The device does not compute in it.
    """
    if name == "fp16" and device.type == "cpu":
        raise BackboneError(
            "fp16 needs a GPU", "use ", Setting("precision", "bf16"), parameter="precision"
        )
    return torch.float32 if name == "auto" else PRECISIONS[name]


def unemulated(precision: torch.dtype, device: torch.device) -> torch.dtype:
    """A precision, or float32 in place of one that a CPU emulates, which takes much longer."""
    if device.type != "cpu" or precision not in {torch.float16, torch.bfloat16}:
        return precision
    return precision if precision in halves_of(device) else torch.float32


def halves_of(device: torch.device) -> tuple[torch.dtype, ...]:
    """The precisions of 16 bits in which a device computes faster, the more exact one first."""
    if device.type == "cuda":
        recent = torch.cuda.get_device_capability(device) >= (8, 0)
        return (torch.float16, torch.bfloat16) if recent else (torch.float16,)
    return (torch.bfloat16,) if device.type == "cpu" and computes_in_bfloat16() else ()
