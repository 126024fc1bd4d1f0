"""The recipes that come with the package."""

import pytest
import torch

from trainer.losses import LOSSES, LOSSES_WITH_MEMORY
from trainer.models import build_model
from trainer.recipes.file import (
    read_recipe,
    recipe_as_dict,
    recipe_from_dict,
    shipped_recipes,
)
from trainer.samples import InputSpec

FOCAL_FAMILY = (
    "adafocal_cifar10",
    "bsce_gra_cifar10",
    "cross_entropy_cifar10",
    "dual_focal_cifar10",
    "focal_cifar10",
    "focal_cifar100",
    "mmce_cifar10",
)
SPECS = {
    "images": InputSpec((3, 32, 32), torch.zeros(3), torch.ones(3)),
    "features": InputSpec((8,), torch.zeros(8), torch.ones(8)),
    "text": InputSpec((20,), vocabulary=("padding", "unknown", "word")),
}
RECIPES = tuple(shipped_recipes())


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_is_valid_and_called_like_its_file(name: str) -> None:
    recipe = read_recipe(name)

    assert recipe.name == name


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_survives_being_written_as_values(name: str) -> None:
    recipe = read_recipe(name)

    assert recipe_from_dict(recipe_as_dict(recipe), name) == recipe


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_opens_with_a_line_that_says_what_it_is(name: str) -> None:
    text = shipped_recipes()[name].read_text(encoding="utf-8")

    assert text.startswith("# ")
    assert text.splitlines()[0].endswith(".")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", RECIPES)
def test_the_model_of_every_shipped_recipe_can_be_built_for_its_data(name: str) -> None:
    recipe = read_recipe(name)

    with torch.device("meta"):
        model = build_model(recipe.model, SPECS[recipe.data.kind], num_classes=10)

    assert sum(parameter.numel() for parameter in model.parameters()) > 0


@pytest.mark.parametrize("loss", sorted({*LOSSES, *LOSSES_WITH_MEMORY} - {"mmce_weighted"}))
def test_every_loss_can_be_set_in_place_of_that_of_a_published_recipe(loss: str) -> None:
    recipe = read_recipe("mmce_cifar10", [f"loss.name={loss}"])

    assert recipe.loss.name == loss
    assert recipe.loss.constants == {}


@pytest.mark.parametrize("name", FOCAL_FAMILY)
def test_the_focal_family_sums_losses_and_clips_gradients_as_published(name: str) -> None:
    recipe = read_recipe(name)

    assert (recipe.training.epochs, recipe.training.batch_size) == (350, 128)
    assert recipe.schedule.milestones == (150, 250)
    assert recipe.training.reduction == "sum"
    assert recipe.optimiser.gradient_clip == 2
    assert recipe.optimiser.weight_decay == 5e-4


@pytest.mark.parametrize(
    ("name", "alpha"),
    [
        ("sample_difficulty_cifar10", 0.3),
        ("sample_difficulty_cifar100", 0.3),
        ("sample_difficulty_imagenet", 0.2),
    ],
)
def test_the_sample_difficulty_recipes_have_the_published_constants(
    name: str, alpha: float
) -> None:
    recipe = read_recipe(name)

    assert (recipe.regulariser.alpha, recipe.regulariser.score_temperature) == (alpha, 0.7)
    assert recipe.regulariser.weights == "scores"
    assert (recipe.optimiser.momentum, recipe.optimiser.weight_decay) == (0.9, 1e-4)
    assert len(recipe.training.seeds) == 5
