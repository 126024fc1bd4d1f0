"""The tables of a recipe and their keys."""

from collections.abc import Mapping
from dataclasses import fields

from trainer.config import (
    DataConfig,
    LossConfig,
    ModelConfig,
    OptimiserConfig,
    RegulariserConfig,
    ScheduleConfig,
    TrainingConfig,
    UncertaintyConfig,
)
from trainer.recipes.messages import did_you_mean

TABLES: dict[str, type] = {
    "data": DataConfig,
    "model": ModelConfig,
    "loss": LossConfig,
    "regulariser": RegulariserConfig,
    "optimiser": OptimiserConfig,
    "schedule": ScheduleConfig,
    "training": TrainingConfig,
    "uncertainty": UncertaintyConfig,
}

# Tables with a `name` whose other keys are settings of the named thing, and the field for these.
OPEN_TABLES = {"model": "options", "loss": "constants"}


def keys_of_table(table: str) -> list[str]:
    """The keys of a table but for the settings of a loss or a model."""
    return [key.name for key in fields(TABLES[table]) if key.name != OPEN_TABLES.get(table)]


def unknown_top_level_key(key: str, value: object) -> str:
    """The message about a key of a recipe outside its tables, or about a table that it lacks."""
    known = ["name", *(f"[{table}]" for table in TABLES)]
    is_table = isinstance(value, Mapping)
    home = None if is_table else home_of(key)
    shown = f"[{key}]" if is_table else key
    hint = f"; it belongs in {home}." if home else did_you_mean(shown, known)
    kind = "table" if is_table else "key outside the tables"
    return f"{shown}: no such {kind}{hint} A recipe has {', '.join(known)}"


def home_of(key: str) -> str | None:
    """The table with a key of that name, if there is exactly one."""
    homes = [table for table, config in TABLES.items() if key in {f.name for f in fields(config)}]
    # The head repeats keys of the classifier, which are meant more often.
    return f"[{homes[0]}]" if homes and len({*homes} - {"uncertainty"}) <= 1 else None
