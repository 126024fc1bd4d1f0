"""MixUp and CutMix in the training loop, and training on distributions."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional as F

from trainer.config import Recipe
from trainer.data import open_splits
from trainer.data.mixing import mix_images
from trainer.training.plan import Purpose, plan_epoch, seed_of
from trainer.training.state import make_train_state
from trainer.training.step import GradientStep, TrainingData
from trainer.training.supervision import Supervision

MakeRecipe = Callable[..., Recipe]


def images_of_constants(samples: int = 6) -> Tensor:
    """Image n has the value 10 n everywhere."""
    values = torch.arange(samples, dtype=torch.uint8) * 10
    return values.view(-1, 1, 1, 1).expand(samples, 3, 16, 16).contiguous()


@pytest.mark.parametrize("mixing", ["mixup", "cutmix"])
def test_the_shares_say_how_much_of_each_image_is_in_a_mixed_one(mixing: Any) -> None:  # noqa: ANN401
    images = images_of_constants()
    torch.manual_seed(0)

    mixed, shares = mix_images(images, mixing, 1.0)

    assert mixed.shape == images.shape
    assert shares[0, 0] not in {0, 1}
    torch.testing.assert_close(shares.sum(1), torch.ones(6))
    mean = mixed.float().mean(dim=(1, 2, 3))
    torch.testing.assert_close(mean, shares @ (10 * torch.arange(6.0)))


def test_cutmix_pastes_pixels_and_mixup_adds_them_up() -> None:
    images = images_of_constants()
    torch.manual_seed(0)

    (pasted, _), (added, shares) = (mix_images(images, name, 1.0) for name in ("cutmix", "mixup"))

    assert pasted.dtype == torch.uint8
    assert set(pasted[1].unique().tolist()) == {0, 10}
    torch.testing.assert_close(added[1].unique(), shares[1, 1:2] * 10)


def test_either_is_one_of_both_at_random() -> None:
    images = images_of_constants()
    torch.manual_seed(0)

    kinds = {mix_images(images, "either", 1.0)[0].dtype for _ in range(20)}

    assert kinds == {torch.uint8, torch.float32}


def step_of(
    recipe: Recipe,
    accelerator: Accelerator,
    **data: Any,  # noqa: ANN401 - data of a run
) -> tuple[GradientStep, Tensor, Tensor]:
    """The first step of a run, which samples it takes and their images."""
    splits = open_splits(recipe.data, 0, torch.device("cpu"))
    train = splits.train
    if "distributions" in data:
        train = replace(train, distributions=data.pop("distributions"))
    state = make_train_state(recipe, 0, splits, accelerator)
    values = TrainingData(train, data.pop("weights", None), None, **data)
    (batch, *_) = plan_epoch(len(train), recipe.training.batch_size, 0, 0)
    (inputs,) = train.inputs.batches([batch], None)
    return GradientStep(state, values, recipe, accelerator), batch, inputs


def test_a_mixed_step_has_mixed_targets_weights_and_doubts(
    image_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = image_recipe(
        loss={"name": "brier"},
        regulariser={"alpha": 0.5},
        training={"mixing": "mixup", "ema_decay": 0.9},
    )
    generator = torch.Generator().manual_seed(3)
    weights, trust = torch.rand(2, 48, generator=generator)
    step, batch, inputs = step_of(
        recipe, accelerator, weights=weights, supervision=Supervision(weights=trust)
    )
    model = copy.deepcopy(step.state.model)
    torch.manual_seed(7)
    mixed, shares = mix_images(inputs, "mixup", 1.0)
    probabilities = model(mixed).softmax(1)
    targets = shares @ F.one_hot(step.data.train.labels[batch], 3).float()
    entropy = -(probabilities * probabilities.log()).sum(1)
    losses = (probabilities - targets).square().sum(1) - 0.5 * (shares @ weights[batch]) * entropy

    torch.manual_seed(7)
    total, correct, *_ = step.take(batch, batch, inputs).tolist()

    expected = (shares @ trust[batch] * losses).sum().detach()
    assert total == pytest.approx(float(expected), rel=1e-4)
    assert correct == float((probabilities.argmax(1) == targets.argmax(1)).sum())


def test_a_step_takes_the_distribution_of_each_sample(
    image_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = image_recipe(loss={"name": "cross_entropy"})
    shares = torch.rand(48, 3, generator=torch.Generator().manual_seed(3))
    shares /= shares.sum(1, keepdim=True)
    step, batch, inputs = step_of(recipe, accelerator, distributions=shares)
    log_probabilities = copy.deepcopy(step.state.model)(inputs).log_softmax(1)

    total = step.take(batch, batch, inputs)[0]

    expected = -(shares[batch] * log_probabilities).sum()
    torch.testing.assert_close(total, expected.detach(), rtol=1e-4, atol=1e-4)


def test_what_is_mixed_depends_on_the_seed_and_the_step_alone() -> None:
    images = images_of_constants()
    results = []
    for _ in range(2):
        torch.manual_seed(seed_of(0, Purpose.DROPOUT, 1) % 2**63)
        results.append(mix_images(images, "cutmix", 1.0)[1])

    assert torch.equal(*results)
