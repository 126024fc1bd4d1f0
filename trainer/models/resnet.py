"""Residual networks (He et al., arXiv:1512.03385) for small images."""

from collections.abc import Sequence

from torch import nn

from difficulty_service.errors import ConfigError
from trainer.models.residual import PaddingShortcut, ResNet, ResNetPlan
from trainer.samples import InputSpec


def resnet18(spec: InputSpec, num_classes: int) -> nn.Module:
    """ResNet-18 with a 3x3 first convolution of stride 1 and no max-pool.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.

    Returns:
        A network from normalised images to logits, with 11.2 million parameters at 10 classes.
    """
    plan = ResNetPlan(64, (64, 128, 256, 512), (2, 2, 2, 2))
    return ResNet(spec.shape[0], num_classes, plan)


def resnet34(spec: InputSpec, num_classes: int) -> nn.Module:
    """ResNet-34 with a 3x3 first convolution of stride 1 and no max-pool.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.

    Returns:
        A network from normalised images to logits, with 21.3 million parameters at 10 classes.
    """
    plan = ResNetPlan(64, (64, 128, 256, 512), (3, 4, 6, 3))
    return ResNet(spec.shape[0], num_classes, plan)


def resnet50(spec: InputSpec, num_classes: int, *, pooled_size: int = 1) -> nn.Module:
    """ResNet-50 with a 3x3 first convolution of stride 1 and no max-pool.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.
        pooled_size: Height and width of the grid that the last stage is averaged to before the
            classifier; 1 is global average pooling. The code of Mukhoti et al. (2020) has 2 for
            the 64x64 images of Tiny-ImageNet.

    Returns:
        A network from normalised images to logits, with 23.5 million parameters at 10 classes.

    Raises:
        ConfigError: The pooled size is below 1.
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
    bottleneck blocks, which is 27 times the network that He et al. call ResNet-110.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.

    Returns:
        A network from normalised images to logits, with 45.9 million parameters at 10 classes.
    """
    plan = ResNetPlan(64, (64, 128, 256, 512), (3, 4, 26, 3), bottleneck=True)
    return ResNet(spec.shape[0], num_classes, plan)


def resnet110_basic(spec: InputSpec, num_classes: int) -> nn.Module:
    """ResNet-110 of He et al.'s section 4.2: three stages of 18 basic blocks.

    Its shortcuts have no parameters and fill new channels with zeros, as in that section.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.

    Returns:
        A network from normalised images to logits, with 1.7 million parameters at 10 classes.
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

    The first convolution halves the image, so that nothing is computed at full resolution. Most
    parameters are in the last stage, where 32x32 images are 4x4 and a parameter costs least.

    Args:
        spec: Specification of images.
        num_classes: Number of logits.
        widths: Number of channels of each stage; the first convolution has that of the first.
        blocks: Number of basic blocks of each stage.

    Returns:
        A network from normalised images to logits; by default it has 2.2 million parameters and,
        for 32x32 images, 45 million multiply-adds.

    Raises:
        ConfigError: The numbers of widths and blocks differ, or one is below 1.
    """
    if len(widths) != len(blocks) or not blocks or min(*widths, *blocks) < 1:
        raise ConfigError(
            f"small_resnet has widths {list(widths)} and blocks {list(blocks)}",
            "give as many widths as numbers of blocks, each at least 1",
        )
    plan = ResNetPlan(widths[0], widths, blocks, stem_stride=2)
    return ResNet(spec.shape[0], num_classes, plan)
