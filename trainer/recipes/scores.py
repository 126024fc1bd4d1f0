"""The score files of a recipe: of its entropy term, of its loss, or one for both."""

from difficulty_service.base.errors import ConfigError
from trainer.config import Recipe, Table

SCORE_KEYS = ("regulariser.scores", "loss.scores")
"""Keys of score files."""

NEEDS_SCORES = (
    'has no effect with regulariser.weights = "constant"; set regulariser.weights = "scores" and '
    'regulariser.alpha above 0, such as 0.3, or loss.weights = "label_probability"'
)
"""What a score file needs."""


def used_scores(recipe: Recipe) -> list[str | None]:
    """The score file of each part of a recipe that needs one; None where it is not named."""
    regulariser, loss = recipe.regulariser, recipe.loss
    by_scores = [regulariser.scores] if regulariser.weights == "scores" else []
    return [*by_scores, loss.scores] if loss.doubts_labels else by_scores


def with_scores(recipe: Recipe, scores: str) -> Recipe:
    """The recipe with a score file for every part that needs one."""
    if not used_scores(recipe):
        raise ConfigError(f"{scores} {NEEDS_SCORES}", parameter="scores")
    parts: dict[str, Table] = {}
    if recipe.regulariser.weights == "scores":
        parts["regulariser"] = recipe.regulariser.model_copy(update={"scores": scores})
    if recipe.loss.doubts_labels:
        parts["loss"] = recipe.loss.model_copy(update={"scores": scores})
    return recipe.model_copy(update=parts)
