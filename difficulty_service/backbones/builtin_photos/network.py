"""The network of the encoder of photographs: EfficientNet-Lite2, its normalisations folded away.

`LAYERS` says all of it. The module below runs it in PyTorch, `convert` writes it as a graph.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

SIZE = 260
FEATURE_DIM = 1280
STEM_WIDTH = 32

STAGES = (
    (16, 1, 3, 1, 1),
    (24, 3, 3, 2, 6),
    (48, 3, 5, 2, 6),
    (88, 4, 3, 2, 6),
    (120, 4, 5, 1, 6),
    (208, 5, 5, 2, 6),
    (352, 1, 3, 1, 6),
)
"""Channels, blocks, side of the kernel, stride of the first block and expansion, of each stage."""

LARGEST = 6.0
"""Where the activation clips; from below it does at 0."""


@dataclass(frozen=True)
class Layer:
    """A convolution with bias, and what follows it.

    Attributes:
        groups: 1, or the number of channels where each is convolved by itself.
        padding: Zeros before and after the image, in both directions, as TensorFlow pads `SAME`.
        clipped: Whether its result is clipped to [0, LARGEST].
        enters: Whether its input is that of a block.
        leaves: Whether the input of the block is added to its result.
    """

    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    padding: tuple[int, int] = (0, 0)
    clipped: bool = True
    enters: bool = False
    leaves: bool = False


def _layers() -> Iterator[Layer]:
    side, channels = SIZE, STEM_WIDTH
    yield Layer(3, channels, 3, 2, padding=_padding(side, 3, 2))
    side = math.ceil(side / 2)
    for outputs, blocks, kernel, first_stride, expansion in STAGES:
        for block in range(blocks):
            stride = 1 if block else first_stride
            wide = channels * expansion
            if expansion > 1:
                yield Layer(channels, wide, enters=True)
            padding = _padding(side, kernel, stride)
            yield Layer(wide, wide, kernel, stride, wide, padding, enters=expansion == 1)
            same = stride == 1 and channels == outputs
            yield Layer(wide, outputs, clipped=False, leaves=same)
            side, channels = math.ceil(side / stride), outputs
    yield Layer(channels, FEATURE_DIM)


def _padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
    return missing // 2, missing - missing // 2


LAYERS = tuple(_layers())


class PhotoEncoder(nn.Module):
    """Maps normalised images (samples, 3, SIZE, SIZE) to features (samples, FEATURE_DIM)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(each.inputs, each.outputs, each.kernel, each.stride, groups=each.groups)
            for each in LAYERS
        )

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, 3, SIZE, SIZE) to (samples, FEATURE_DIM)."""
        entered = images
        for layer, convolution in zip(LAYERS, self.layers, strict=True):
            if layer.enters:
                entered = images
            images = convolution(F.pad(images, layer.padding * 2) if layer.kernel > 1 else images)
            if layer.clipped:
                images = images.clamp_(0, LARGEST)
            if layer.leaves:
                images = images.add_(entered)
        return images.mean(dim=(2, 3))
