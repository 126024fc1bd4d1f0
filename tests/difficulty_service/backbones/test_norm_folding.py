"""Folding removes normalisations wherever possible, and changes features only by rounding."""

import pytest
import timm
import torch
from torch import Tensor, nn

from difficulty_service.backbones.frozen_network import fold_norms

IMAGES = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def used(network: nn.Module) -> nn.Module:
    """A network whose normalisations have different running statistics."""
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.2, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.2, generator=generator)
    return network.eval()


def norms(network: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def small(*layers: nn.Module) -> nn.Module:
    return used(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()))


@pytest.mark.parametrize("model", ["mobilenetv2_100", "resnet18", "efficientnet_b0"])
def test_all_norms_of_timm_networks_are_folded_without_changing_the_features(model: str) -> None:
    torch.manual_seed(0)
    network = used(timm.create_model(model, num_classes=0))

    folded = fold_norms(network, (64, 64))

    with torch.inference_mode():
        expected, features = network(IMAGES), folded(IMAGES)
    assert (norms(network) > 0, norms(folded)) == (True, 0)
    scale = float(expected.abs().max())
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-5 * scale)


def test_the_original_network_keeps_its_weights() -> None:
    network = small(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    folded = fold_norms(network, (64, 64))

    assert norms(folded) == 0
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


def test_a_norm_that_follows_no_convolution_is_kept() -> None:
    network = small(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4))

    assert fold_norms(network, (64, 64)) is network


def test_a_norm_without_running_statistics_is_kept() -> None:
    network = small(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))

    assert fold_norms(network, (64, 64)) is network


def test_a_convolution_used_twice_is_kept() -> None:
    shared = nn.Conv2d(3, 3, 3, padding=1)
    network = small(shared, nn.BatchNorm2d(3), nn.ReLU(), shared, nn.BatchNorm2d(3))

    assert fold_norms(network, (64, 64)) is network


class Shortcut(nn.Module):
    """A convolution whose output is used by its norm and elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        convolved = self.conv(images)
        return (self.norm(convolved) + convolved).mean(dim=(2, 3))


def test_a_network_that_folding_would_change_is_returned_unchanged() -> None:
    network = used(Shortcut())

    assert fold_norms(network, (64, 64)) is network


def test_a_network_without_norms_is_not_copied() -> None:
    network = small(nn.Conv2d(3, 4, 3), nn.ReLU())

    assert fold_norms(network, (64, 64)) is network
