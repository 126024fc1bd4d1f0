"""Changes of single keys of a recipe, such as those of `--set` and `--scores`."""

import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from difficulty_service.base.errors import ConfigError
from trainer.config import Recipe
from trainer.config.table import RecipeTable

Change = tuple[list[str], Any]
"""The table and key of one change, or only the latter, and its value; None removes the key."""


def split_overrides(overrides: Sequence[str]) -> list[Change]:
    """Splits changes such as "loss.gamma=3" into keys and values, each TOML or else plain text."""
    changes = [_split(override) for override in overrides]
    refuse_repeated(changes)
    return changes


def refuse_repeated(changes: Iterable[Change]) -> None:
    """Raises ConfigError where two changes are of the same key."""
    counts = Counter(".".join(keys) for keys, _ in changes)
    twice = [key for key, count in counts.items() if count > 1]
    if twice:
        raise ConfigError(
            f"{' and '.join(twice)} is changed more than once",
            "change each key once",
            parameter="overrides",
        )


def with_overrides(
    values: dict[str, Any],
    changes: Sequence[Change],
    open_tables: Mapping[str, Collection[str]],
) -> dict[str, Any]:
    """Applies changes, those of names first and the others in their order.

    Args:
        changes: Result of `split_overrides`.
        open_tables: Tables whose other keys are settings of what their name names, and are removed
            when it changes; each with the keys that stay.
    """
    names = [[table, "name"] for table in open_tables]
    for keys, value in sorted(changes, key=lambda change: change[0] not in names):
        table = values
        if len(keys) > 1:
            table = values.setdefault(keys[0], {})
        if not isinstance(table, dict):
            continue  # reported later as a wrong table
        if keys in names and table.get("name") != value:
            for key in table.keys() - open_tables[keys[0]]:
                del table[key]
        if value is not None:
            table[keys[-1]] = value
        elif keys[-1] in table:
            del table[keys[-1]]
        else:
            raise ConfigError(
                f"{'.'.join(keys)} cannot be removed: the recipe does not set it",
                "leave out this change",
                parameter="overrides",
            )
    return values


def keys_of(values: Mapping[str, Any]) -> set[str]:
    """The keys of a recipe's values with their table, as in "schedule.factor"."""
    return {
        f"{table}.{key}"
        for table, part in values.items()
        if isinstance(part, Mapping)
        for key in part
    }


def keys_of_overrides(changes: Iterable[Change]) -> set[str]:
    """The keys that changes give a value or remove, and the tables that they replace."""
    keys: set[str] = set()
    for names, value in changes:
        keys.add(".".join(names))
        keys |= keys_of({names[0]: value}) if len(names) == 1 else set()
    return keys


def decisive(keys: Iterable[str]) -> set[str]:
    """Keys and their tables: a change of either changes the value of a key."""
    return {name for key in keys for name in (key, key.partition(".")[0])}


def _split(override: str) -> Change:
    key, sign, text = override.partition("=")
    keys = [part.strip() for part in key.split(".")]
    if not sign or not all(keys) or len(keys) > 2:  # noqa: PLR2004 - a table and its key
        raise ConfigError(
            f"{override!r} is not a change of a recipe",
            "give KEY=VALUE, such as training.epochs=30 or loss.name=focal",
            parameter="overrides",
        )
    return keys, value_of(text.strip())


def value_of(text: str) -> Any:  # noqa: ANN401 - any TOML value
    """The value of a text: TOML, or else the text itself; None where it is empty."""
    if not text:
        return None
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    plain = len(parsed) == 1 and isinstance(parsed["value"], bool | int | float | str | list | dict)
    return parsed["value"] if plain else text  # the name of a file may look like a date


SCORE_KEYS = ("regulariser.scores", "loss.scores", "sampling.scores")
"""Keys of score files."""

NEEDS_SCORES = (
    'has no effect with regulariser.weights = "constant"; set regulariser.weights = "scores" and '
    'regulariser.alpha above 0, such as 0.3, loss.weights = "label_probability", or '
    'sampling.order = "easy_first"'
)
"""What a score file needs."""


def used_scores(recipe: Recipe) -> list[str | None]:
    """The score file of each part of a recipe that needs one; None where it is not named."""
    regulariser, loss, sampling = recipe.regulariser, recipe.loss, recipe.sampling
    used = [regulariser.scores] if regulariser.weights == "scores" else []
    used += [loss.scores] if loss.doubts_labels else []
    return used if sampling.order == "random" else [*used, sampling.scores]


def with_scores(recipe: Recipe, scores: str) -> Recipe:
    """The recipe with a score file for every part that needs one."""
    if not used_scores(recipe):
        raise ConfigError(f"{scores} {NEEDS_SCORES}", parameter="scores")
    parts: dict[str, RecipeTable] = {}
    if recipe.regulariser.weights == "scores":
        parts["regulariser"] = recipe.regulariser.model_copy(update={"scores": scores})
    if recipe.loss.doubts_labels:
        parts["loss"] = recipe.loss.model_copy(update={"scores": scores})
    if recipe.sampling.order != "random":
        parts["sampling"] = recipe.sampling.model_copy(update={"scores": scores})
    return recipe.model_copy(update=parts)
