"""The uncertainty head: against the published network, and nothing flows back from it."""

import pytest
import torch
from torch import Tensor, nn

from trainer.uncertainty.head import SMALLEST, UncertaintyHead
from trainer.uncertainty.training import ranking_loss

DIM = 6


def random_head(hidden: tuple[int, ...] = (8,)) -> UncertaintyHead:
    torch.manual_seed(0)
    return UncertaintyHead(torch.zeros(DIM), torch.ones(DIM), hidden)


@pytest.mark.parametrize("depth", [2, 3])
def test_the_head_is_the_published_network(golden: dict[str, Tensor], depth: int) -> None:
    features = golden[f"head_{depth}__features"]
    dim = features.shape[1]
    head = UncertaintyHead(torch.zeros(dim), torch.ones(dim), [24] * depth).double()
    names = head.layers.state_dict()
    head.layers.load_state_dict({name: golden[f"head_{depth}__{name}"] for name in names})

    uncertainties = head(features)

    expected = golden[f"head_{depth}__out"]
    torch.testing.assert_close(uncertainties, expected, rtol=1e-9, atol=0)


def test_a_head_without_hidden_layers_is_linear() -> None:
    head = random_head(())
    features = torch.randn(5, DIM)

    (layer,) = head.layers
    expected = nn.functional.softplus(layer(features))[:, 0] + SMALLEST

    torch.testing.assert_close(head(features), expected)


def test_features_are_standardised_and_constant_ones_only_centred() -> None:
    features = torch.randn(50, DIM) * 100 + 7
    features[:, 2] = 3
    mean, std = features.mean(0), features.std(0)
    head = UncertaintyHead(mean, std, (8,))
    plain = UncertaintyHead(torch.zeros(DIM), torch.ones(DIM), (8,))
    plain.layers.load_state_dict(head.layers.state_dict())

    expected = plain((features - mean) / torch.where(std > 0, std, 1))

    torch.testing.assert_close(head(features), expected)


def test_uncertainties_are_positive_also_where_softplus_underflows() -> None:
    head = random_head(())
    with torch.no_grad():
        head.layers[0].bias.fill_(-1e4)  # type: ignore[union-attr, operator]

    assert (head(torch.randn(5, DIM)) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_of_any_floating_type_are_taken(dtype: torch.dtype) -> None:
    features = torch.randn(5, DIM).to(dtype)

    uncertainties = random_head()(features)

    torch.testing.assert_close(uncertainties, random_head()(features.float()))


def test_no_gradient_reaches_the_features_or_the_classifier() -> None:
    backbone, classifier, head = nn.Linear(4, DIM), nn.Linear(DIM, 3), random_head()
    features = backbone(torch.randn(7, 4))
    labels = torch.randint(0, 3, (7,))
    losses = nn.functional.cross_entropy(classifier(features), labels, reduction="none")

    ranking_loss(head(features), losses).mean().backward()

    assert all(each.grad is None for each in (*backbone.parameters(), *classifier.parameters()))
    assert all(each.grad is not None for each in head.parameters())
