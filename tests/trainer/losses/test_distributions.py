"""Losses of distributions over the classes: soft labels, against the formulas written out."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, make_loss
from trainer.losses.adafocal import AdaFocal
from trainer.losses.cross_entropy import cross_entropy
from trainer.training.objective import Objective

REFUSED = {
    "bsce_flsd_53": "its gamma follows from the probability of one label",
    "bsce_flsd_53_gra": "its gamma follows from the probability of one label",
    "correctness_ranking": "it counts how often the label was predicted",
    "mmce": "whether the label was predicted",
    "mmce_weighted": "whether the label was predicted",
}
DISTANCES = {"brier", "bsce", "bsce_gra"}
MEANS = sorted((LOSSES | LOSSES_WITH_MEMORY).keys() - REFUSED.keys() - DISTANCES)
TAKEN = [*MEANS, *sorted(DISTANCES)]
CLASSES = 5


def naive_mean(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, shares: Tensor) -> Tensor:
    """Each class as the label, one after another, and the mean by the distribution."""
    rows = []
    for own, share in zip(logits, shares, strict=True):
        labels = (torch.tensor([label]) for label in range(len(share)))
        rows.append(sum(s * loss(own[None], k)[0] for s, k in zip(share, labels, strict=True)))
    return torch.stack([torch.as_tensor(row) for row in rows])


def naive_score(logits: Tensor, shares: Tensor, gamma: float, beta: float) -> Tensor:
    distance = sum(
        (p - q).abs() ** beta for p, q in zip(logits.softmax(-1).T, shares.T, strict=True)
    )
    return torch.as_tensor(distance) ** (gamma / beta)


@pytest.fixture
def logits() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(12, CLASSES, generator=generator, dtype=torch.float64)
    logits[0, :3] = 1.0  # tied classes
    return logits.requires_grad_()


@pytest.fixture
def shares() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    counts = torch.randint(0, 20, (12, CLASSES), generator=generator).double() + 1e-3
    return counts / counts.sum(dim=1, keepdim=True)


def gradient(losses: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(losses.sum(), logits, retain_graph=True)[0]


def adafocal() -> AdaFocal:
    """With gammas of either sign, and edges that share out the probabilities."""
    loss = AdaFocal(num_bins=3)
    edges = torch.tensor([0.0, 0.1, 0.5, 1.0], dtype=torch.float64)
    gammas = torch.tensor([2.0, -0.7, 0.5], dtype=torch.float64)
    loss.load_state_dict({"gammas": gammas, "lower": edges[:-1], "upper": edges[1:]})
    return loss


def test_every_loss_takes_distributions_or_says_why_not() -> None:
    assert {*TAKEN, *REFUSED} == {*LOSSES, *LOSSES_WITH_MEMORY}


@pytest.mark.parametrize("name", MEANS)
def test_a_loss_of_a_distribution_is_its_mean_over_the_labels(
    name: str, logits: Tensor, shares: Tensor
) -> None:
    loss = adafocal() if name == "adafocal" else make_loss(name)

    losses, expected = loss(logits, shares), naive_mean(loss, logits, shares)

    torch.testing.assert_close(losses, expected)
    # Among tied classes the one that receives the gradient of dual focal loss is arbitrary.
    rows = slice(1 if name.startswith("dual") else 0, None)
    torch.testing.assert_close(gradient(losses, logits)[rows], gradient(expected, logits)[rows])


def test_the_brier_score_is_the_squared_distance_to_the_distribution(
    logits: Tensor, shares: Tensor
) -> None:
    losses = make_loss("brier")(logits, shares)

    expected = naive_score(logits, shares, gamma=2.0, beta=2.0)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient(losses, logits), gradient(expected, logits))


@pytest.mark.parametrize(("gamma", "beta"), [(2.0, 2.0), (1.0, 2.0), (3.0, 1.5)])
def test_bsce_is_weighted_by_the_distance_to_the_distribution(
    logits: Tensor, shares: Tensor, gamma: float, beta: float
) -> None:
    nll = -(shares * logits.softmax(-1).log()).sum(-1)
    score = naive_score(logits, shares, gamma, beta)

    plain = make_loss("bsce", gamma=gamma, beta=beta)(logits, shares)
    constant = make_loss("bsce_gra", gamma=gamma, beta=beta)(logits, shares)

    torch.testing.assert_close(plain, score * nll)
    torch.testing.assert_close(constant, score * nll)
    torch.testing.assert_close(gradient(plain, logits), gradient(score * nll, logits))
    expected = score[:, None] * (logits.softmax(-1) - shares)
    torch.testing.assert_close(gradient(constant, logits), expected)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_one_hot_distribution_gives_the_loss_of_its_label(
    name: str, logits: Tensor, dtype: torch.dtype
) -> None:
    logits = logits.detach().to(dtype)[1:].requires_grad_()
    labels = torch.arange(len(logits)) % CLASSES
    loss = adafocal() if name == "adafocal" else make_loss(name)

    hard, soft = loss(logits, labels), loss(logits, F.one_hot(labels, CLASSES).to(dtype))

    torch.testing.assert_close(soft, hard)
    torch.testing.assert_close(gradient(soft, logits), gradient(hard, logits))


@pytest.mark.parametrize("name", TAKEN)
def test_a_confident_prediction_has_a_finite_loss_and_gradient(name: str) -> None:
    logits = torch.tensor([[60.0, 0.0, -60.0], [0.0, 90.0, 0.0]], requires_grad=True)
    shares = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])

    losses = make_loss(name)(logits, shares)

    assert losses.isfinite().all()
    assert gradient(losses, logits).isfinite().all()


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_without_a_meaning_for_distributions_names_itself_and_the_reason(
    name: str, logits: Tensor, shares: Tensor
) -> None:
    with pytest.raises(ValueError, match=f"(?i){name[:4]}.* one label per sample.*{REFUSED[name]}"):
        make_loss(name)(logits, shares)


@pytest.mark.parametrize("name", [*TAKEN, "mmce"])
@pytest.mark.parametrize(
    "targets",
    [
        torch.ones(12, CLASSES, dtype=torch.int64),
        torch.ones(12),
        torch.ones(12, CLASSES - 1),
        torch.ones(11, dtype=torch.int64),
    ],
)
def test_targets_that_are_neither_labels_nor_distributions_are_refused(
    name: str, logits: Tensor, targets: Tensor
) -> None:
    with pytest.raises(ValueError, match="give class indices, whole numbers"):
        make_loss(name)(logits, targets)


def test_distributions_combine_with_the_difficulty_term(logits: Tensor, shares: Tensor) -> None:
    weights = torch.rand(12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    losses = Objective(cross_entropy, alpha=0.3)(logits, shares, weights)

    log_p = logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    torch.testing.assert_close(losses, -(shares * log_p).sum(-1) - 0.3 * weights * entropy)
