"""The built-in encoder, through a file of random weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from difficulty_service.backbones import BACKBONES, builtin, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.builtin.network import FEATURE_DIM, BuiltinEncoder
from difficulty_service.base.errors import BackboneError


def test_features_equal_those_of_the_unfolded_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 3, 32, 32)
    network = BuiltinEncoder()
    network(torch.randn(64, 3, 32, 32))  # Moves the running statistics away from 0 and 1.
    expected = network.eval()(images).detach()
    tensors = {name: tensor.half() for name, tensor in network.fold().state_dict().items()}
    save_file(tensors, tmp_path / "encoder.safetensors")

    backbone = load_backbone("builtin", BackboneOptions(str(tmp_path / "encoder.safetensors")))
    features = backbone.encode(images)

    assert backbone.feature_dim == FEATURE_DIM == BACKBONES["builtin"].facts.feature_dim
    assert backbone.preprocessing.size == 32
    assert features.dtype == torch.float32
    torch.testing.assert_close(features, expected, rtol=0.02, atol=0.01)


def test_missing_weights_are_expected_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "BUILTIN_WEIGHTS", tmp_path / "encoder.safetensors")

    with pytest.raises(BackboneError, match=r"builtin are not at .*install the package again"):
        load_backbone("builtin", BackboneOptions())


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    save_file({"stem.conv.weight": torch.zeros(8, 3, 3, 3)}, tmp_path / "encoder.safetensors")

    with pytest.raises(BackboneError, match="8x3x3x3 instead of 32x3x3x3"):
        load_backbone("builtin", BackboneOptions(str(tmp_path / "encoder.safetensors")))
