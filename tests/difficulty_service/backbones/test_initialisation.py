"""Networks to load are not filled with random values before, and hold their weights once."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers import trunc_normal_
from torch import Tensor, nn

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.initialisation import WithoutRandomValues


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Linear(8, 8).weight,
        lambda: nn.Conv2d(3, 8, 3).weight,
        lambda: nn.MultiheadAttention(8, 2).in_proj_weight,
        lambda: nn.Embedding(8, 8).weight,
        lambda: nn.init.orthogonal_(torch.empty(8, 8)),
        lambda: nn.init.normal_(tensor=torch.empty(8, 8)),
        lambda: trunc_normal_(torch.empty(8, 8), std=0.02),
    ],
    ids=["linear", "convolution", "attention", "embedding", "orthogonal", "normal", "truncated"],
)
def test_no_random_number_is_drawn(build: Callable[[], Tensor]) -> None:
    before = torch.get_rng_state()

    with WithoutRandomValues():
        tensor = build()

    assert torch.equal(torch.get_rng_state(), before)
    assert tensor.isnan().any()  # as the tests of this folder have it


def test_what_is_no_random_value_is_computed_as_ever() -> None:
    with WithoutRandomValues():
        norm, count = nn.LayerNorm(4), torch.arange(4).sum()

    assert norm.weight.tolist() == [1.0] * 4
    assert count == 6


def bytes_of_tensors() -> int:
    """Bytes behind all tensors of this process, those that several share once."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) in {Tensor, nn.Parameter}]
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in tensors}
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.slow
def test_a_network_of_timm_holds_its_weights_once(tmp_path: Path) -> None:
    network = timm.create_model("resnet18", num_classes=0)
    expected = sum(each.nbytes for each in network.state_dict().values())
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    del network
    before = bytes_of_tensors()

    backbone = load_backbone(
        "timm:resnet18", BackboneOptions(weights=str(tmp_path / "weights.safetensors"))
    )

    assert backbone.feature_dim == 512
    assert bytes_of_tensors() - before < 1.01 * expected
