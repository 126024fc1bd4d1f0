"""What the tables of a recipe have in common: their model, and the conditions of their keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class RecipeTable(BaseModel):
    """One table of a recipe, or one kind of it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )
    hints: ClassVar[Mapping[str, str]] = {}
    """What to do about keys of another kind, where that is more than to remove them."""


@dataclass(frozen=True)
class Needs:
    """What must hold for a key to have an effect; the remedy is a template of the keys' values."""

    keys: tuple[str, ...]
    holds: Callable[..., bool]
    remedy: str


def needs(key: str, *choices: str, remedy: str = "remove it") -> Needs:
    """The condition that another key has one of some values."""
    listed = " and ".join(f'"{choice}"' for choice in choices)
    sentence = f'has no effect with {key} = "{{}}"; it applies to {listed}; {remedy}'
    return Needs((key,), lambda value: value in choices, sentence)
