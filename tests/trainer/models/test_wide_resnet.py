"""Wide residual networks, with activation before and after their convolutions."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.models.residual import WideBlock, wide_resnet, wide_resnet_post_activation
from trainer.samples import InputSpec

SPEC = InputSpec((3, 16, 16))


def test_a_block_of_the_same_shape_adds_its_raw_input() -> None:
    block = WideBlock(4, 4, stride=1, dropout=0.0)
    torch.nn.init.zeros_(block.conv2.weight)
    images = torch.randn(2, 4, 5, 5)

    torch.testing.assert_close(block(images), images)


def test_depth_sets_the_blocks_and_widen_their_channels() -> None:
    model = wide_resnet(SPEC, 10, depth=14, widen=2)

    blocks = list(model.get_submodule("blocks").children())

    assert len(blocks) == 6
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 10)
    assert model.get_submodule("classifier").in_features == 128


def test_dropout_acts_in_training_only() -> None:
    model = wide_resnet(SPEC, 10, depth=8, widen=1, dropout=0.5)
    images = torch.randn(2, 3, 16, 16)

    assert not torch.equal(model(images), model(images))

    model.eval()
    assert torch.equal(model(images), model(images))


@pytest.mark.parametrize("builder", [wide_resnet, wide_resnet_post_activation])
def test_an_impossible_depth_is_refused_with_possible_ones(
    builder: Callable[..., nn.Module],
) -> None:
    with pytest.raises(ConfigError, match=r"depth 28; .* such as 14, 20 or 26"):
        builder(SPEC, 10, depth=28)


@pytest.mark.parametrize("widen", [0, -1])
@pytest.mark.parametrize("builder", [wide_resnet, wide_resnet_post_activation])
def test_a_width_without_channels_is_refused(builder: Callable[..., nn.Module], widen: int) -> None:
    with pytest.raises(ConfigError, match=rf"{builder.__name__} has widen {widen}; make it 1 or"):
        builder(SPEC, 10, widen=widen)


def test_with_post_activation_relu_comes_last_and_shortcuts_are_normalised() -> None:
    model = wide_resnet_post_activation(SPEC, 10, depth=8, widen=1).eval()
    parameters = dict(model.named_parameters())
    scale = (1 + 1e-5) ** -0.5  # of a new batch normalisation in evaluation

    def convolve(images: Tensor, name: str, stride: int = 1, padding: int = 1) -> Tensor:
        return scale * F.conv2d(images, parameters[name], stride=stride, padding=padding)

    images = torch.randn(2, 3, 16, 16)
    hidden = F.relu(convolve(images, "conv1.weight"))
    for block, stride in enumerate((1, 2, 2)):
        shortcut = hidden
        if stride == 2:
            shortcut = convolve(hidden, f"blocks.{block}.shortcut.0.weight", stride, padding=0)
        hidden = F.relu(convolve(hidden, f"blocks.{block}.conv1.weight", stride))
        hidden = F.relu(convolve(hidden, f"blocks.{block}.conv2.weight") + shortcut)
    expected = hidden.mean((2, 3)) @ parameters["classifier.weight"].T
    expected = expected + parameters["classifier.bias"]

    torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-5)


def test_the_networks_have_the_parameters_of_their_layers() -> None:
    with torch.device("meta"):
        before, after = wide_resnet(SPEC, 10), wide_resnet_post_activation(SPEC, 10)
    shared = 27 * 16 + 640 * 10 + 10  # first convolution and classifier
    norms_before, norms_after = 2 * 640, 2 * 16
    for channels, width in ((16, 160), (160, 320), (320, 640)):
        shared += 9 * channels * width + 7 * 9 * width**2 + channels * width
        norms_before += 2 * channels + 7 * 2 * width
        norms_after += 8 * 2 * width + 2 * width

    assert sum(each.numel() for each in before.parameters()) == shared + norms_before
    assert sum(each.numel() for each in after.parameters()) == shared + norms_after
