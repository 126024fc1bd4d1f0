"""Residual, wide residual and densely connected networks for small images.

He et al., arXiv:1512.03385; Zagoruyko and Komodakis, arXiv:1605.07146; Huang et al.,
arXiv:1608.06993.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.models.layers import initialise
from trainer.samples import InputSpec


class ProjectionShortcut(nn.Sequential):
    """A 1x1 convolution with batch normalisation where the shape changes, the identity elsewhere.

    Option B of He et al.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        changes = stride != 1 or in_channels != channels
        layers: list[nn.Module] = []
        if changes:
            layers.append(nn.Conv2d(in_channels, channels, 1, stride, bias=False))
            layers.append(nn.BatchNorm2d(channels))
        super().__init__(*layers)


class PaddingShortcut(nn.Module):
    """Subsampling and zero padding of the channels, without parameters. Option A of He et al."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = channels - in_channels

    def forward(self, images: Tensor) -> Tensor:
        """Maps images from the block's input shape to its output shape."""
        if self.stride == 1 and self.new_channels == 0:
            return images
        subsampled = images[:, :, :: self.stride, :: self.stride]
        return F.pad(subsampled, (0, 0, 0, 0, 0, self.new_channels))


Shortcut = type[ProjectionShortcut] | type[PaddingShortcut]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int,
        shortcut: Shortcut = ProjectionShortcut,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = shortcut(in_channels, channels, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, channels, h / stride, w / stride)."""
        hidden = F.relu(self.bn1(self.conv1(images)))
        hidden = self.bn2(self.conv2(hidden))
        return F.relu(hidden + self.shortcut(images))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the output has four times the channels."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        wide = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.shortcut = ProjectionShortcut(in_channels, wide, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, 4 channels, h / stride, w / stride)."""
        hidden = F.relu(self.bn1(self.conv1(images)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        hidden = self.bn3(self.conv3(hidden))
        return F.relu(hidden + self.shortcut(images))


@dataclass(frozen=True)
class ResNetPlan:
    """The architecture of a residual network.

    Attributes:
        stem: Number of channels after the first convolution.
        widths: Number of channels of the convolutions of each stage; every stage but the first
            halves the image.
        bottleneck: Whether blocks have three convolutions rather than two.
        stem_stride: Stride of the first convolution.
        shortcut: Shortcut of basic blocks, where the shape changes.
        pooled_size: Height and width of the grid that the last stage is averaged to.
    """

    stem: int
    widths: Sequence[int]
    blocks: Sequence[int]
    bottleneck: bool = False
    stem_stride: int = 1
    shortcut: Shortcut = ProjectionShortcut
    pooled_size: int = 1


class ResNet(nn.Module):
    """A 3x3 convolution, stages of blocks, average pooling, and a linear layer."""

    def __init__(self, in_channels: int, num_classes: int, plan: ResNetPlan) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, plan.stem, 3, plan.stem_stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(plan.stem)
        blocks: list[nn.Module] = []
        channels = plan.stem
        for stage, (width, count) in enumerate(zip(plan.widths, plan.blocks, strict=True)):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                if plan.bottleneck:
                    blocks.append(Bottleneck(channels, width, stride))
                    channels = width * Bottleneck.expansion
                else:
                    blocks.append(BasicBlock(channels, width, stride, plan.shortcut))
                    channels = width
        self.blocks = nn.Sequential(*blocks)
        self.pooled_size = plan.pooled_size
        self.classifier = nn.Linear(channels * plan.pooled_size**2, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images, shape (samples, channels, h, w), to logits (samples, num_classes)."""
        hidden = self.blocks(F.relu(self.bn1(self.conv1(images))))
        return self.classifier(F.adaptive_avg_pool2d(hidden, self.pooled_size).flatten(1))


def resnet18(spec: InputSpec, num_classes: int) -> nn.Module:
    """ResNet-18 with a 3x3 first convolution of stride 1 and no max-pool.

    11.2 million parameters at 10 classes.
    """
    plan = ResNetPlan(64, (64, 128, 256, 512), (2, 2, 2, 2))
    return ResNet(spec.shape[0], num_classes, plan)


def resnet34(spec: InputSpec, num_classes: int) -> nn.Module:
    """ResNet-34 with a 3x3 first convolution of stride 1 and no max-pool.

    21.3 million parameters at 10 classes.
    """
    plan = ResNetPlan(64, (64, 128, 256, 512), (3, 4, 6, 3))
    return ResNet(spec.shape[0], num_classes, plan)


def resnet50(spec: InputSpec, num_classes: int, *, pooled_size: int = 1) -> nn.Module:
    """ResNet-50 with a 3x3 first convolution of stride 1 and no max-pool.

    The last stage is averaged to a grid of `pooled_size` before the classifier; 1 is global average
    pooling. The code of Mukhoti et al. (2020) has 2 for the 64x64 images of Tiny-ImageNet. 23.5
    million parameters at 10 classes.
    """
    if pooled_size < 1:
        raise ConfigError(f"resnet50 has pooled_size {pooled_size}", "make it 1 or more")
    plan = ResNetPlan(
        64, (64, 128, 256, 512), (3, 4, 6, 3), bottleneck=True, pooled_size=pooled_size
    )
    return ResNet(spec.shape[0], num_classes, plan)


def resnet110_bottleneck(spec: InputSpec, num_classes: int) -> nn.Module:
    """The ResNet-110 of the focal loss papers: ResNet-101 with three more blocks in a stage.

    The code of Mukhoti et al. (2020) and Ghosh et al. (2022) has four stages of 3, 4, 26 and 3
    bottleneck blocks, which is 27 times the network that He et al. call ResNet-110: 45.9 million
    parameters at 10 classes.
    """
    plan = ResNetPlan(64, (64, 128, 256, 512), (3, 4, 26, 3), bottleneck=True)
    return ResNet(spec.shape[0], num_classes, plan)


def resnet110_basic(spec: InputSpec, num_classes: int) -> nn.Module:
    """ResNet-110 of He et al.'s section 4.2: three stages of 18 basic blocks.

    Its shortcuts have no parameters and fill new channels with zeros, as in that section. 1.7
    million parameters at 10 classes.
    """
    plan = ResNetPlan(16, (16, 32, 64), (18, 18, 18), shortcut=PaddingShortcut)
    return ResNet(spec.shape[0], num_classes, plan)


def small_resnet(
    spec: InputSpec,
    num_classes: int,
    *,
    widths: Sequence[int] = (32, 96, 256),
    blocks: Sequence[int] = (1, 1, 2),
) -> nn.Module:
    """A residual network that two CPU cores train on CIFAR-10 in minutes.

    The first convolution, as wide as the first stage, halves the image, so that nothing is computed
    at full resolution. Most parameters are in the last stage, where 32x32 images are 4x4 and a
    parameter costs least. By default it has 2.2 million parameters and, for 32x32 images, 45
    million multiply-adds. Widths are numbers of channels, and blocks basic ones.
    """
    if len(widths) != len(blocks) or not blocks or min(*widths, *blocks) < 1:
        raise ConfigError(
            f"small_resnet has widths {list(widths)} and blocks {list(blocks)}",
            "give as many widths as numbers of blocks, each at least 1",
        )
    plan = ResNetPlan(widths[0], widths, blocks, stem_stride=2)
    return ResNet(spec.shape[0], num_classes, plan)


class WideBlock(nn.Module):
    """Batch normalisation and ReLU before each of two 3x3 convolutions, with a shortcut."""

    def __init__(self, in_channels: int, channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Conv2d(in_channels, channels, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, channels, h / stride, w / stride)."""
        active = F.relu(self.bn1(images))
        hidden = F.relu(self.bn2(self.conv1(active)))
        hidden = self.conv2(self.dropout(hidden))
        return hidden + (images if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """A 3x3 convolution, three stages of blocks, global average pooling, and a linear layer."""

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        blocks: int,
        widths: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        channels = 16
        self.conv1 = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        for stage, width in enumerate(widths):
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(WideBlock(channels, width, stride, dropout))
                channels = width
        self.blocks = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images, shape (samples, channels, h, w), to logits (samples, num_classes)."""
        hidden = F.relu(self.bn(self.blocks(self.conv1(images))))
        return self.classifier(hidden.mean((2, 3)))


def wide_resnet(
    spec: InputSpec, num_classes: int, *, depth: int = 26, widen: int = 10, dropout: float = 0.0
) -> nn.Module:
    """The WRN-28-10 of Zagoruyko and Komodakis, and other depths and widths.

    Depth is counted as in the focal loss papers, in consecutive convolutions and linear layers,
    without the 1x1 convolutions of the shortcuts, and is two more than a multiple of six: the
    default of 26 has four blocks per stage, as WRN-28-10 has. The stages have `widen` times 16, 32
    and 64 channels, and dropout is between the convolutions of a block. Normalisation and ReLU come
    before each convolution; `wide_resnet_post_activation` has them after it. 36.5 million
    parameters at 10 classes.
    """
    blocks, widths = _blocks("wide_resnet", depth), _widths("wide_resnet", widen)
    return WideResNet(spec.shape[0], num_classes, blocks, widths, dropout)


def wide_resnet_post_activation(
    spec: InputSpec, num_classes: int, *, depth: int = 26, widen: int = 10
) -> nn.Module:
    """WRN-26-10 of the focal loss papers, with normalisation and ReLU after each convolution.

    The code of Mukhoti et al. (2020) widens a residual network of He et al.'s basic blocks; its
    shortcuts are normalised where the shape changes, and it has no dropout. Depth and width are
    those of `wide_resnet`. 36.5 million parameters at 10 classes.
    """
    blocks = _blocks("wide_resnet_post_activation", depth)
    plan = ResNetPlan(16, _widths("wide_resnet_post_activation", widen), (blocks,) * 3)
    return ResNet(spec.shape[0], num_classes, plan)


def _blocks(name: str, depth: int) -> int:
    """Number of blocks per stage, of two convolutions each."""
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ConfigError(
            f"{name} has depth {depth}",
            "make it two more than a multiple of six, such as 14, 20 or 26",
        )
    return blocks


def _widths(name: str, widen: int) -> tuple[int, int, int]:
    """Number of channels of each stage."""
    if widen < 1:
        raise ConfigError(f"{name} has widen {widen}", "make it 1 or more")
    return 16 * widen, 32 * widen, 64 * widen


GROWTH = 32
BLOCKS = (6, 12, 24, 16)


class DenseLayer(nn.Module):
    """A 1x1 and a 3x3 convolution whose outputs are concatenated with their inputs."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, 4 * GROWTH, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, in_channels + GROWTH, h, w)."""
        hidden = self.conv1(F.relu(self.bn1(images)))
        hidden = self.conv2(F.relu(self.bn2(hidden)))
        return torch.cat((images, hidden), dim=1)


class Transition(nn.Module):
    """A 1x1 convolution that halves the channels, and a 2x2 average pooling."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, in_channels // 2, 1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, in_channels, h, w) to (samples, in_channels / 2, h / 2, w / 2)."""
        return F.avg_pool2d(self.conv(F.relu(self.bn(images))), 2)


class DenseNet(nn.Module):
    """A 3x3 convolution, blocks of dense layers, global average pooling, and a linear layer."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        channels = 2 * GROWTH
        layers: list[nn.Module] = [nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)]
        for block, count in enumerate(BLOCKS):
            if block > 0:
                layers.append(Transition(channels))
                channels //= 2
            for _ in range(count):
                layers.append(DenseLayer(channels))
                channels += GROWTH
        self.layers = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images, shape (samples, channels, h, w), to logits (samples, num_classes)."""
        hidden = F.relu(self.bn(self.layers(images)))
        return self.classifier(hidden.mean((2, 3)))


def densenet121(spec: InputSpec, num_classes: int) -> nn.Module:
    """DenseNet-121 with a 3x3 first convolution of stride 1 and no max-pool.

    For images of at least 8 pixels on each side; 7.0 million parameters at 10 classes.
    """
    return DenseNet(spec.shape[0], num_classes)
