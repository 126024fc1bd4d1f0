"""The objective: any loss minus alpha times weight times entropy."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.base.errors import TrainingError
from trainer.losses import make_loss
from trainer.losses.cross_entropy import cross_entropy, entropy, entropy_regularised
from trainer.training.objective import Objective
from trainer.training.supervision import LabelBeliefs

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 5, generator=generator, requires_grad=True)
    return logits, torch.arange(12) % 5, torch.rand(12, generator=generator)


@pytest.mark.parametrize("name", ["a", "b", "x"])
def test_difficulty_weighting_matches_the_paper_written_out(name: str) -> None:
    record = np.load(DATA / f"losses_{name}.npz")
    key = "difficulty_er_a0.3_mean"
    logits = torch.tensor(record["logits"], requires_grad=True)

    losses = Objective(cross_entropy, alpha=0.3)(
        logits, torch.tensor(record["targets"]), torch.tensor(record["weights"])
    )

    total = losses.mean()
    (gradient,) = torch.autograd.grad(total, logits)
    norms = gradient.norm(dim=1).numpy()
    if f"{key}__grad" in record:
        expected = np.linalg.norm(record[f"{key}__grad"], axis=1)
        np.testing.assert_allclose(gradient, record[f"{key}__grad"], rtol=1e-9, atol=1e-15)
    else:
        expected = record[f"{key}__gradnorm"]
    np.testing.assert_allclose(norms, expected, rtol=1e-9, atol=1e-15)
    assert total.item() == pytest.approx(float(record[f"{key}__value"]), rel=1e-9)


def test_alpha_zero_is_the_plain_loss(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    logits, targets, weights = batch

    losses = Objective(cross_entropy, alpha=0.0)(logits, targets, weights)

    assert torch.equal(losses, F.cross_entropy(logits, targets, reduction="none"))


def test_alpha_zero_leaves_alone_a_class_that_is_ruled_out() -> None:
    logits, targets = torch.tensor([[1.0, -torch.inf, 0.0]]), torch.tensor([0])

    losses = Objective(cross_entropy, alpha=0.0)(logits, targets)

    assert losses.isfinite().all()


@pytest.mark.parametrize("ones", [None, torch.ones(12)])
def test_weights_of_one_are_ordinary_entropy_regularisation(
    batch: tuple[Tensor, Tensor, Tensor], ones: Tensor | None
) -> None:
    logits, targets, _ = batch
    expected = entropy_regularised(logits, targets, alpha=0.2)

    losses = Objective(cross_entropy, alpha=0.2)(logits, targets, ones)

    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("name", ["bsce_gra", "adafocal", "mmce", "label_smoothing"])
def test_any_loss_combines_with_the_difficulty_term(
    batch: tuple[Tensor, Tensor, Tensor], name: str
) -> None:
    logits, targets, weights = batch
    loss = make_loss(name)

    losses = Objective(loss, alpha=0.3)(logits, targets, weights)

    expected = loss(logits, targets) - 0.3 * weights * entropy(logits)
    torch.testing.assert_close(losses, expected)


def test_a_harder_sample_is_pulled_more_towards_uncertainty() -> None:
    logits = torch.tensor([[3.0, 0.0], [3.0, 0.0]], requires_grad=True)
    targets, weights = torch.tensor([0, 0]), torch.tensor([0.9, 0.1])

    losses = Objective(cross_entropy, alpha=0.3)(logits, targets, weights)

    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert gradient[0, 0] > gradient[1, 0]


def test_no_gradient_flows_into_the_weights(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    logits, targets, weights = batch
    weights.requires_grad_()

    Objective(cross_entropy, alpha=0.3)(logits, targets, weights).sum().backward()

    assert weights.grad is None


def test_weights_of_another_precision_keep_the_dtype_of_the_logits(
    batch: tuple[Tensor, Tensor, Tensor],
) -> None:
    logits, targets, weights = batch

    losses = Objective(cross_entropy, alpha=0.3)(logits, targets, weights.double())

    assert losses.dtype == logits.dtype


def test_a_column_of_weights_is_refused(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    logits, targets, weights = batch

    with pytest.raises(ValueError, match=r"\(12, 1\) for 12 samples"):
        Objective(cross_entropy, alpha=0.3)(logits, targets, weights.unsqueeze(-1))


@pytest.mark.parametrize("alpha", [-0.1, float("nan")])
def test_an_alpha_below_zero_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        Objective(cross_entropy, alpha=alpha)


@pytest.fixture
def beliefs(batch: tuple[Tensor, Tensor, Tensor]) -> LabelBeliefs:
    """What is known about the labels of the batch; nothing about those of the last two."""
    _, targets, _ = batch
    shares = torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    known = torch.arange(12) < 10
    return LabelBeliefs(
        torch.where(known, shares, 1.0), known, torch.where(known, (targets + 2) % 5, targets)
    )


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("name", ["cross_entropy", "brier", "bsce_gra", "adafocal", "mmce"])
def test_weights_by_the_label_multiply_the_whole_objective_and_have_the_mean_one(
    batch: tuple[Tensor, Tensor, Tensor], beliefs: LabelBeliefs, name: str, alpha: float
) -> None:
    logits, targets, weights = batch
    objective = Objective(make_loss(name), alpha)
    supervision = beliefs.as_weights()

    losses = objective(logits, targets, weights, supervision)

    mean = sum(beliefs.probabilities[:10].tolist()) / 10
    factors = [share / mean for share in beliefs.probabilities[:10].tolist()] + [1.0, 1.0]
    plain = objective(logits, targets, weights).tolist()
    expected = [factor * loss for factor, loss in zip(factors, plain, strict=True)]
    np.testing.assert_allclose(losses.tolist(), expected, rtol=1e-5, atol=1e-7)
    assert sum(factors) == pytest.approx(12)


SOFT = ["cross_entropy", "brier", "label_smoothing", "poly_loss", "focal", "dual_focal", "adafocal"]


@pytest.mark.parametrize("name", SOFT)
def test_second_labels_make_any_loss_its_mean_over_both(
    batch: tuple[Tensor, Tensor, Tensor], beliefs: LabelBeliefs, name: str
) -> None:
    logits, targets, weights = batch
    loss = make_loss(name)
    supervision = beliefs.as_second_labels()

    losses = Objective(loss, 0.3)(logits, targets, weights, supervision)

    for row in range(12):
        one = logits[row : row + 1]
        share, other = float(beliefs.probabilities[row]), beliefs.others[row : row + 1]
        expected = share * loss(one, targets[row : row + 1]) + (1 - share) * loss(one, other)
        expected = expected - 0.3 * weights[row] * entropy(one)
        torch.testing.assert_close(losses[row : row + 1], expected, rtol=1e-5, atol=1e-6)


def test_cross_entropy_with_second_labels_is_that_against_soft_targets(
    batch: tuple[Tensor, Tensor, Tensor], beliefs: LabelBeliefs
) -> None:
    logits, targets, _ = batch
    soft = torch.zeros(12, 5)
    for row in range(12):
        soft[row, targets[row]] += float(beliefs.probabilities[row])
        soft[row, beliefs.others[row]] += 1 - float(beliefs.probabilities[row])
    supervision = beliefs.as_second_labels()

    losses = Objective(cross_entropy)(logits, targets, supervision=supervision)

    expected = F.cross_entropy(logits, soft, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient, logits.softmax(1) - soft)


def test_labels_of_which_none_is_believed_have_no_weights() -> None:
    nothing = torch.zeros(3, dtype=torch.float64)
    beliefs = LabelBeliefs(nothing, torch.ones(3, dtype=torch.bool), torch.zeros(3).long())

    with pytest.raises(TrainingError, match="every training sample is 1"):
        beliefs.as_weights()
