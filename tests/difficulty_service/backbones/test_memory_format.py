"""Networks with the channels last in memory, as they run, against float64 in plain layout."""

import copy

import pytest
import torch

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.frozen_network import FrozenNetwork, pooled_features


@pytest.mark.parametrize(
    "name",
    [
        "builtin",
        "timm:test_byobnet",  # 1x1 convolutions with a stride, few channels
        "timm:test_convnext",  # depthwise convolutions
        "timm:test_efficientnet",  # depthwise, squeeze and excitation
        "timm:test_nfnet",  # grouped convolutions
        "timm:test_resnet",
    ],
)
def test_features_are_those_of_float64(name: str) -> None:
    torch.manual_seed(0)
    backbone = load_backbone(name, BackboneOptions(random=name != "builtin"))
    assert isinstance(backbone, FrozenNetwork)
    exact = copy.deepcopy(backbone.network).to(
        dtype=torch.float64, memory_format=torch.contiguous_format
    )
    size = backbone.preprocessing.size

    for samples in (1, 3):
        images = torch.randn(samples, 3, size, size)
        with torch.no_grad():
            expected = pooled_features(exact(images.double()))

        features = backbone.encode(images.contiguous(memory_format=backbone.memory_format))

        error = (features.double() - expected).norm(dim=1) / expected.norm(dim=1)
        assert error.max() < 1e-5
