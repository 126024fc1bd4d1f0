"""Properties of every loss, and losses by name."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.base.errors import ConfigError
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, Loss, loss_constants, make_loss

NAMES = [*LOSSES, *LOSSES_WITH_MEMORY]
# Constants with which a loss is plain cross-entropy.
PLAIN: dict[str, dict[str, Any]] = {
    "adafocal": {"first_gamma": 0.0},
    "bsce": {"gamma": 0.0},
    "bsce_gra": {"gamma": 0.0},
    "correctness_ranking": {"coefficient": 0.0},
    "dual_focal": {"gamma": 0.0},
    "dual_focal_gra": {"gamma": 0.0},
    "entropy_regularised": {"alpha": 0.0},
    "focal": {"gamma": 0.0},
    "focal_gra": {"gamma": 0.0},
    "label_smoothing": {"smoothing": 0.0},
    "lambert_focal": {"largest_gamma": 0.0},
    "logit_l1": {"coefficient": 0.0},
    "mmce": {"coefficient": 0.0},
    "mmce_weighted": {"coefficient": 0.0},
    "poly_loss": {"epsilon": 0.0},
    "scheduled_focal": {"gammas": (0.0,), "boundaries": ()},
}


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 5, generator=generator, requires_grad=True), torch.arange(12) % 5


def name_samples(loss: Loss, samples: int) -> None:
    """Gives a loss with a history the samples of the next batch, as the loop does."""
    sample_ids = [str(row) for row in range(samples)]
    for hook in ("before_training", "before_batch"):
        getattr(loss, hook, list)(sample_ids)


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_gives_one_finite_number_per_sample_in_the_dtype_of_the_logits(
    batch: tuple[Tensor, Tensor], name: str
) -> None:
    logits, targets = batch
    loss = make_loss(name)
    name_samples(loss, len(targets))

    losses = loss(logits, targets)

    assert losses.shape == targets.shape
    assert losses.dtype == logits.dtype
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert losses.isfinite().all()
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", PLAIN)
def test_every_loss_that_extends_cross_entropy_can_be_turned_into_it(
    batch: tuple[Tensor, Tensor], name: str
) -> None:
    logits, targets = batch
    loss = make_loss(name, **PLAIN[name])
    name_samples(loss, len(targets))

    losses = loss(logits, targets)

    torch.testing.assert_close(losses, F.cross_entropy(logits, targets, reduction="none"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_every_loss_is_the_same_on_a_gpu(batch: tuple[Tensor, Tensor], name: str) -> None:
    logits, targets = batch
    loss = make_loss(name)
    name_samples(loss, len(targets))

    there = loss(logits.cuda(), targets.cuda()).cpu()

    torch.testing.assert_close(there, loss(logits, targets))


def test_an_unknown_loss_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'hinge'.*adafocal.*poly_loss"):
        make_loss("hinge")


def test_an_unknown_constant_is_an_error_that_lists_those_of_the_loss() -> None:
    with pytest.raises(ConfigError, match=r"'focal' has no constant 'gama'; choose from gamma"):
        make_loss("focal", gama=2.0)
    with pytest.raises(ConfigError, match="takes none"):
        make_loss("brier", gamma=2.0)


def test_constants_have_their_defaults() -> None:
    assert loss_constants("bsce_gra") == {"gamma": 2.0, "beta": 2.0, "form": "norm"}
    assert loss_constants("correctness_ranking")["coefficient"] == 1.0


def test_a_loss_that_is_misspelt_is_told_which_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"no loss 'focl'; did you mean 'focal'\? choose one of"):
        make_loss("focl")
