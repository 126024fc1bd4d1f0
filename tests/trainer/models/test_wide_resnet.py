"""Wide residual networks."""

import pytest
import torch

from difficulty_service.errors import ConfigError
from trainer.models.wide_resnet import WideBlock, wide_resnet
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


def test_an_impossible_depth_is_refused_with_possible_ones() -> None:
    with pytest.raises(ConfigError, match=r"depth 28; .* such as 14, 20 or 26"):
        wide_resnet(SPEC, 10, depth=28)
