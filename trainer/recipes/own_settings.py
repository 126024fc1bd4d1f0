"""Settings in a recipe of models and losses from outside the package."""

from collections.abc import Mapping
from typing import Any

from difficulty_service.errors import ConfigError
from trainer.losses.own_loss import own_constants
from trainer.models.own_model import own_options
from trainer.own_code import REQUIRED
from trainer.recipes.messages import unknown_key, wrong_value


def wrong_own_settings(table: str, name: str, settings: Mapping[str, Any]) -> list[str]:
    """The problems of a model or a loss from outside the package, which is imported for that.

    Args:
        table: "model" or "loss".
        name: Its name in the recipe.
        settings: Other keys of the table.
    """
    try:
        known = (own_options if table == "model" else own_constants)(name)
    except ConfigError as error:
        return [wrong_value(f"{table}.name", name, str(error))]
    where = f'[{table}] of name "{name}"'
    missing = [
        f"{where} {key}: is missing; {name} has no default for it"
        for key, default in known.defaults.items()
        if default is REQUIRED and key not in settings
    ]
    if known.takes_any:
        return missing
    unknown = [key for key in settings if key not in known.defaults]
    return [*missing, *(unknown_key(where, key, known.defaults) for key in unknown)]
