"""Wide residual networks (Zagoruyko and Komodakis, arXiv:1605.07146)."""

import torch.nn.functional as F
from torch import Tensor, nn

from difficulty_service.errors import ConfigError
from trainer.models.initialisation import initialise
from trainer.models.residual import ResNet, ResNetPlan
from trainer.samples import InputSpec


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
        self, in_channels: int, num_classes: int, blocks: int, widen: int, dropout: float
    ) -> None:
        super().__init__()
        channels = 16
        self.conv1 = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        for stage, width in enumerate((16 * widen, 32 * widen, 64 * widen)):
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

    Depth is counted as in the focal loss papers, without the 1x1 convolutions of the shortcuts:
    the default of 26 has four blocks per stage, as WRN-28-10 has. Normalisation and ReLU come
    before each convolution; `wide_resnet_post_activation` has them after it.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.
        depth: Number of consecutive convolutions and linear layers, two more than a multiple of
            six.
        widen: Factor of the stages' 16, 32 and 64 channels.
        dropout: Fraction of values set to zero between the convolutions of a block in training.

    Returns:
        A network from normalised images to logits; by default it has 36.5 million parameters at 10
        classes.

    Raises:
        ConfigError: No number of blocks gives that depth.
    """
    return WideResNet(spec.shape[0], num_classes, _blocks("wide_resnet", depth), widen, dropout)


def wide_resnet_post_activation(
    spec: InputSpec, num_classes: int, *, depth: int = 26, widen: int = 10
) -> nn.Module:
    """WRN-26-10 of the focal loss papers, with normalisation and ReLU after each convolution.

    The code of Mukhoti et al. (2020) widens a residual network of He et al.'s basic blocks; its
    shortcuts are normalised where the shape changes, and it has no dropout.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.
        depth: Number of consecutive convolutions and linear layers, two more than a multiple of
            six.
        widen: Factor of the stages' 16, 32 and 64 channels.

    Returns:
        A network from normalised images to logits; by default it has 36.5 million parameters at 10
        classes.

    Raises:
        ConfigError: No number of blocks gives that depth.
    """
    blocks = _blocks("wide_resnet_post_activation", depth)
    plan = ResNetPlan(16, (16 * widen, 32 * widen, 64 * widen), (blocks,) * 3)
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
