"""Residual networks: their blocks, and the small one."""

import pytest
import torch
import torch.nn.functional as F

from trainer.models.residual import (
    BasicBlock,
    Bottleneck,
    PaddingShortcut,
    resnet50,
    resnet110_bottleneck,
    small_resnet,
)
from trainer.samples import InputSpec


def test_a_basic_block_adds_its_input_to_two_convolutions() -> None:
    block = BasicBlock(4, 4, stride=1).eval()
    images = torch.randn(2, 4, 6, 6)

    outputs = block(images)

    hidden = F.relu(F.conv2d(images, block.conv1.weight, padding=1) / (1 + 1e-5) ** 0.5)
    hidden = F.conv2d(hidden, block.conv2.weight, padding=1) / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(outputs, F.relu(hidden + images))


def test_a_bottleneck_has_four_times_its_channels_and_half_the_image() -> None:
    block = Bottleneck(8, 4, stride=2)

    assert block(torch.randn(2, 8, 6, 6)).shape == (2, 16, 3, 3)


def test_a_shortcut_of_padding_keeps_every_second_pixel_and_adds_channels_of_zeros() -> None:
    images = torch.arange(16.0).reshape(1, 1, 4, 4)

    shortcut = PaddingShortcut(1, 2, stride=2)(images)

    expected = torch.tensor([[[[0.0, 2.0], [8.0, 10.0]], [[0.0, 0.0], [0.0, 0.0]]]])
    torch.testing.assert_close(shortcut, expected)


def test_resnet110_with_bottlenecks_has_the_parameters_of_its_layers() -> None:
    with torch.device("meta"):
        model = resnet110_bottleneck(InputSpec((3, 32, 32)), 100)
    expected = 27 * 64 + 2 * 64 + 2048 * 100 + 100
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 26), (512, 3)):
        expected += channels * 4 * width + 2 * 4 * width  # shortcut of the first block
        for _ in range(blocks):
            expected += channels * width + 9 * width**2 + width * 4 * width
            expected += 2 * width + 2 * width + 2 * 4 * width
            channels = 4 * width

    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.slow
def test_the_classifier_sees_a_grid_of_the_pooled_size() -> None:
    model = resnet50(InputSpec((3, 64, 64)), 200, pooled_size=2).eval()
    images = torch.randn(1, 3, 64, 64)
    features = torch.zeros(1, 2048, 8, 8)
    features[..., 4:, :4] = 1.0  # lower left quarter
    model.get_submodule("blocks").register_forward_hook(lambda *_: features)

    logits = model(images)

    weight = model.get_parameter("classifier.weight").reshape(200, 2048, 2, 2)
    expected = weight[:, :, 1, 0].sum(1) + model.get_parameter("classifier.bias")
    torch.testing.assert_close(logits, expected[None], rtol=1e-4, atol=1e-5)


def test_the_small_network_computes_nothing_at_full_resolution() -> None:
    model = small_resnet(InputSpec((3, 32, 32)), 10)
    sizes: list[int] = []
    for block in model.get_submodule("blocks").children():
        block.register_forward_hook(lambda _block, _inputs, images: sizes.append(images.shape[-1]))

    model(torch.randn(2, 3, 32, 32))

    assert sizes == [16, 8, 4, 4]


def test_the_small_network_can_be_made_smaller() -> None:
    model = small_resnet(InputSpec((3, 32, 32)), 10, widths=(8, 16), blocks=(1, 1))

    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert sum(parameter.numel() for parameter in model.parameters()) < 10_000
