"""The score files of a recipe: of its entropy term, of its loss, or one for both."""

from dataclasses import replace

from difficulty_service.errors import ConfigError
from trainer.config import Recipe
from trainer.recipes.effects import NEEDS_SCORES

SCORE_KEYS = ("regulariser.scores", "loss.scores")
"""Keys of score files."""


def used_scores(recipe: Recipe) -> list[str | None]:
    """The score file of each part of a recipe that needs one; None where it is not named."""
    parts = (
        (recipe.regulariser.weights == "scores", recipe.regulariser.scores),
        (recipe.loss.doubts_labels, recipe.loss.scores),
    )
    return [scores for used, scores in parts if used]


def with_scores(recipe: Recipe, scores: str) -> Recipe:
    """The recipe with a score file for every part that needs one.

    Raises:
        ConfigError: No part needs any.
    """
    if not used_scores(recipe):
        raise ConfigError(f"{scores} {NEEDS_SCORES}", parameter="scores")
    if recipe.regulariser.weights == "scores":
        recipe = replace(recipe, regulariser=replace(recipe.regulariser, scores=scores))
    if recipe.loss.doubts_labels:
        recipe = replace(recipe, loss=replace(recipe.loss, scores=scores))
    return recipe
