"""Settings of the model and the loss of a recipe, which their names decide."""

from collections.abc import Mapping
from typing import Any

from difficulty_service.base.errors import ConfigError
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, loss_constants
from trainer.losses.own_loss import own_constants
from trainer.models import AMBIGUOUS, MODELS, PREFIXES, model_options
from trainer.models.own_model import own_options
from trainer.own_code import REQUIRED, is_own
from trainer.recipes.messages import did_you_mean, unknown_key, wrong_value
from trainer.recipes.tables import keys_of_table

# The type of a default value, the types of the values that may replace it, and what they are.
TYPES: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (bool, (bool,), "true or false"),
    (int, (int,), "a whole number"),
    (float, (int, float), "a number"),
    (str, (str,), "text"),
    (tuple, (list, tuple), "a list, such as [1, 2]"),
)


def wrong_settings(table: str, name: object, settings: Mapping[str, Any]) -> list[str]:
    """The problems of the name of a loss or a model and of its settings."""
    if not isinstance(name, str):
        return []  # reported as missing or of a wrong type
    if is_own(name):
        return _wrong_own_settings(table, name, settings)
    if table == "model" and name in AMBIGUOUS:
        return [wrong_value("model.name", name, AMBIGUOUS[name])]
    names = sorted(MODELS) if table == "model" else sorted(LOSSES | LOSSES_WITH_MEMORY)
    if name not in names and not (table == "model" and name.startswith(PREFIXES)):
        patterns = [f"{prefix}NAME" for prefix in PREFIXES] if table == "model" else []
        choices = ", ".join([*names, *patterns, "package.module:name"])
        choice = f"no such {table}{did_you_mean(name, names)} Choose one of {choices}"
        return [wrong_value(f"{table}.name", name, choice)]
    defaults = model_options(name) if table == "model" else loss_constants(name)
    problems = []
    for key, value in settings.items():
        if key not in defaults:
            known = [*defaults, *(each for each in keys_of_table(table) if each != "name")]
            problems.append(unknown_key(f'[{table}] of name "{name}"', key, known))
        else:
            problems += _wrong_setting(f"{table}.{key}", value, defaults[key])
    return problems


def _wrong_own_settings(table: str, name: str, settings: Mapping[str, Any]) -> list[str]:
    """The same of a model or a loss from outside the package, which is imported for that."""
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


def _wrong_setting(key: str, value: object, default: object) -> list[str]:
    """One message where a setting has another type than its default; None allows any type."""
    for kind, accepted, expected in TYPES:
        if isinstance(default, kind):
            # A bool is an int in Python, but not in a recipe.
            fits = isinstance(value, accepted) and isinstance(value, bool) == (kind is bool)
            return [] if fits else [wrong_value(key, value, f"must be {expected}")]
    return []
