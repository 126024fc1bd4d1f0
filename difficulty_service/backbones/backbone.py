"""What every backbone offers: uint8 images in, one feature vector each out."""

from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from torch import Tensor

from difficulty_service.errors import BackboneError


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the square uint8 input of a backbone, and is normalised on the device.

    Attributes:
        size: Side of the square input, in pixels.
        resize: The shorter side is resized to this many pixels, then the centre is cropped.
        interpolation: `bicubic` or `bilinear`, always with antialiasing.
        mean: Per channel, of values in [0, 1].
        std: Per channel, of values in [0, 1].
    """

    size: int
    resize: int
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def describe(self) -> dict[str, object]:
        """The fields as JSON values, for provenance."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


class Backbone(Protocol):
    """A frozen pretrained encoder, in eval mode on its device.

    Attributes:
        name: The name it is asked for by.
        feature_dim: Length of a feature vector.
        preprocessing: What its input images must look like.
        weights_sha256: Hex digest of the file the pretrained weights came from.
    """

    name: str
    feature_dim: int
    preprocessing: Preprocessing
    weights_sha256: str

    def encode(self, images: Tensor) -> Tensor:
        """Features of normalised images.

        Args:
            images: Normalised, on the backbone's device. Shape (samples, 3, size, size).

        Returns:
            Shape (samples, feature_dim), float32.
        """
        ...


@dataclass(frozen=True)
class BackboneOptions:
    """What a backbone is built with.

    Attributes:
        weights: A weights file to use instead of the hub's; None for the hub's cache or download.
        features: `penultimate` (before any projection) or `projected` (CLIP's shared space).
        device: Where to put the network.
        precision: dtype of the network's parameters and inputs.
    """

    weights: str | None = None
    features: str = "penultimate"
    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32


def choose_device(name: str) -> torch.device:
    """The device of that name, or the best there is for `auto`.

    Raises:
        BackboneError: There is no such device here.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BackboneError(f"device {name!r} cannot be used here: {reason}") from None
    return device


def best_precision(device: torch.device) -> torch.dtype:
    """bf16 on a GPU with the hardware for it, otherwise fp32."""
    recent = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if recent else torch.float32
