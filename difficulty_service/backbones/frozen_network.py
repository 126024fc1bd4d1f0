"""A pretrained network with the interface of a backbone."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from difficulty_service.backbones.backbone import Backbone, BackboneOptions, Preprocessing
from difficulty_service.backbones.norm_folding import fold_norms, pooled_features
from difficulty_service.backbones.weights import file_sha256
from difficulty_service.errors import BackboneError


@dataclass(eq=False)  # Not frozen: the attributes of the Backbone protocol are settable.
class FrozenNetwork:
    """A backbone that wraps a module in eval mode.

    Attributes:
        name: Name under which the user selects it.
        feature_dim: Length of a feature vector.
        preprocessing: Preprocessing of its input images.
        weights_sha256: Hex SHA-256 of the weights file, or `random`.
        network: Module that maps images to features of shape (samples, feature_dim).
        precision: dtype of the network's parameters.
        memory_format: Memory layout of images that is fastest for the network.
        flip: Whether features are the mean of those of the image and of its mirror image.
    """

    name: str
    feature_dim: int
    preprocessing: Preprocessing
    weights_sha256: str
    network: nn.Module
    precision: torch.dtype
    memory_format: torch.memory_format
    flip: bool = False

    def encode(self, images: Tensor) -> Tensor:
        """Features of normalised images.

        Args:
            images: Normalised, on the backbone's device. Shape (samples, 3, size, size).

        Returns:
            Shape (samples, feature_dim), float32.
        """
        with torch.inference_mode():
            images = images.to(dtype=self.precision, memory_format=self.memory_format)
            features = self._forward(images)
            if not self.flip:
                return features
            # One pass for each view and not one for both, which would take twice the memory.
            return (features + self._forward(images.flip(3))) / 2

    def _forward(self, images: Tensor) -> Tensor:
        return pooled_features(self.network(images)).to(torch.float32)


def freeze(
    name: str,
    network: nn.Module,
    preprocessing: Preprocessing,
    weights: Path | None,
    options: BackboneOptions,
) -> Backbone:
    """Moves a network to its device and precision, and measures its feature dimension.

    Args:
        name: Name under which the user selects it.
        network: Module that maps normalised images to features, on the CPU.
        preprocessing: Preprocessing of its input images.
        weights: Its weights file; None where they are random.
        options: Device, precision and flip.

    Raises:
        BackboneError: The network does not return one vector per image.
    """
    # A vision transformer has a single convolution, the patch embedding. Convolutional networks
    # run faster with the channels last.
    convolutions = sum(isinstance(module, nn.Conv2d) for module in network.modules())
    memory_format = torch.channels_last if convolutions > 1 else torch.contiguous_format
    network = network.eval().requires_grad_(requires_grad=False)
    network = fold_norms(network, preprocessing.size)
    network = network.to(device=options.device, dtype=options.precision)
    network = network.to(memory_format=memory_format)
    backbone = FrozenNetwork(
        name=name,
        feature_dim=0,
        preprocessing=preprocessing,
        weights_sha256="random" if weights is None else file_sha256(weights),
        network=network,
        precision=options.precision,
        memory_format=memory_format,
        flip=options.flip,
    )
    image = torch.zeros(1, 3, preprocessing.size, preprocessing.size, device=options.device)
    shape = backbone.encode(image).shape
    if len(shape) != 2:  # noqa: PLR2004
        raise BackboneError(
            f"{name} returns features of shape {tuple(shape)} for one image, expected one vector"
        )
    backbone.feature_dim = shape[1]
    return backbone
