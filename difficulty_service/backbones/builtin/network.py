"""The network of the built-in encoder: a small residual network for 32x32 images."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

WIDTHS = (32, 64, 160, 352)
BLOCKS = (1, 1, 2, 1)
INNER_STAGE = 2
"""Stage whose first block also gives its inner layer, the one that helped most in trials."""

FEATURE_DIM = WIDTHS[INNER_STAGE] + sum(
    width * blocks for width, blocks in zip(WIDTHS[1:], BLOCKS[1:], strict=True)
)
TRAINED_DIM = WIDTHS[-2] + WIDTHS[-1]
"""Number of the last features, from which the network learned the classes of its training set."""


class ConvNorm(nn.Module):
    """A convolution and its batch normalisation, which `fold` merges into one convolution."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs)

    def fold(self) -> None:
        """Merges the normalisation into the convolution; the module must be in eval mode."""
        if isinstance(self.norm, nn.BatchNorm2d):
            self.conv = fuse_conv_bn_eval(self.conv, self.norm)
            self.norm = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Convolves and normalises; shape (samples, inputs, h, w) to (samples, outputs, h', w')."""
        return self.norm(self.conv(images))


class Residual(nn.Module):
    """Two 3x3 convolutions with a shortcut, which is a 1x1 convolution where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride)
        self.second = ConvNorm(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, inputs, h, w) to (samples, outputs, h / stride, w / stride)."""
        return self.outer(self.inner(images), images)

    def inner(self, images: Tensor) -> Tensor:
        """The layer between both convolutions; shape as that of the result."""
        return torch.relu_(self.first(images))

    def outer(self, inner: Tensor, images: Tensor) -> Tensor:
        """The result, from the layer between both convolutions and the input."""
        return torch.relu_(self.second(inner).add_(self.shortcut(images)))


class BuiltinEncoder(nn.Module):
    """Maps normalised images (samples, 3, 32, 32) to features (samples, FEATURE_DIM).

    The features are the spatial means of every block after the first stage and of one layer inside,
    concatenated: those of earlier layers are less specific to the classes of the training set and
    transfer better.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, WIDTHS[0], 3)
        stages, inputs = [], WIDTHS[0]
        for index, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
            strides = [1 if index == 0 else 2] + [1] * (blocks - 1)
            stage = []
            for stride in strides:
                stage.append(Residual(inputs, width, stride))
                inputs = width
            stages.append(nn.Sequential(*stage))
        self.stages = nn.ModuleList(stages)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, 3, height, width) to (samples, FEATURE_DIM)."""
        images = self.stages[0](torch.relu_(self.stem(images)))
        layers = []
        for number, stage in enumerate(self.stages[1:], start=1):
            for position, module in enumerate(stage.children()):
                block = cast(Residual, module)
                inner = block.inner(images)
                images = block.outer(inner, images)
                layers += [inner, images] if (number, position) == (INNER_STAGE, 0) else [images]
        return torch.cat([layer.mean(dim=(2, 3)) for layer in layers], dim=1)

    def fold(self) -> "BuiltinEncoder":
        """Folds every normalisation into its convolution, for inference only."""
        self.eval()
        for module in list(self.modules()):
            if isinstance(module, ConvNorm):
                module.fold()
        return self
