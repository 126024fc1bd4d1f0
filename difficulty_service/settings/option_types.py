"""The base of options, what their values are checked to be, and how texts with several are read."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from cyclopts import Group, Parameter
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
)

from difficulty_service.base.wording import did_you_mean
from difficulty_service.images.corruption_strengths import STRENGTHS
from difficulty_service.scorers.strategies import STRATEGIES
from difficulty_service.scores.score_columns import SCORERS


class Options(BaseModel):
    """Options that belong together; the docstring of a field is its sentence everywhere."""

    # Most commands use some of the models only, so each is built when it is first used.
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, defer_build=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        for each in cls.model_fields.values():
            each.description = " ".join((each.description or "").split())

    @classmethod
    def among(cls, values: Mapping[str, Any]) -> Self:
        """These options among values by their names."""
        return cls(**{name: values[name] for name in cls.model_fields if name in values})


@dataclass(frozen=True)
class InPython:
    """How a keyword of Python differs from the option of the other front ends.

    Attributes:
        sentence: Its sentence, with the default; empty for the same.
        type: Its annotation; empty for the same.
    """

    sentence: str = ""
    type: str = ""


def panel(title: str) -> Parameter:
    """Where `--help` lists the options of a model; panels come in the order they are made."""
    return Parameter(name="*", group=Group.create_ordered(title))


MOST_SAMPLES = 10**12
LARGEST_SEED = 2**31 - 1


Column = Annotated[str, Field(min_length=1, max_length=500)]


def split_names(text: str) -> list[str]:
    """The names in a text, which commas separate."""
    return [name.strip() for name in text.split(",") if name.strip()]


def split_lines(text: str) -> list[str]:
    """The names in a text: one on each line, or with commas between where it is a single line."""
    if "\n" not in text.strip():
        return split_names(text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def names_in_order(text: str) -> str:
    """Names of classes in the order of their numbers.

    Raises:
        ValueError: There is none, or one is there twice.
    """
    names = split_lines(text)
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if not names or twice is not None:
        problem = "names no class" if twice is None else f"names {twice!r} twice"
        raise ValueError(f"the text {problem}; name each class once, such as cat,dog")
    return text


def known_scorers(names: Sequence[str]) -> tuple[str, ...]:
    """Names of scorers, each once; one text may hold several, separated by commas.

    Raises:
        ValueError: A name is unknown or there twice, or there is none.
    """
    names = [name for text in names for name in split_names(text)]
    for name in names:
        if name not in SCORERS:
            raise ValueError(
                f"{name!r} is no scorer; {did_you_mean(name, SCORERS)}expected some of "
                f"{', '.join(SCORERS)}"
            )
    if not names or len(set(names)) < len(names):
        raise ValueError("name one scorer or more, each at most once")
    return tuple(names)


def known_corruption(text: str) -> str:
    """A name and a level, such as fog:3.

    Raises:
        ValueError: There is no such corruption.
    """
    name, separator, level = text.partition(":")
    if separator and name not in STRENGTHS:
        raise ValueError(
            f"no corruption {name!r}; {did_you_mean(name, STRENGTHS)}choose one of "
            f"{', '.join(STRENGTHS)}"
        )
    if level not in {"1", "2", "3", "4", "5"}:
        raise ValueError(f"{text!r} is not a name and a level from 1 to 5, such as fog:3")
    return text


def parse_actors(text: str) -> tuple[int, int]:
    """Minimum and maximum number of actors.

    Raises:
        ValueError: The text is neither N nor MIN:MAX.
    """
    match = re.fullmatch(r"(\d{1,5})(?::(\d{1,5}))?", text)
    fewest = int(match[1]) if match else 0
    most = int(match[2]) if match and match[2] else fewest
    if not 1 <= fewest <= most:
        raise ValueError(
            f"{text!r} is neither a number of actors, such as 8, nor MIN:MAX, such as 2:8"
        )
    return fewest, most


Scorers = Annotated[
    Sequence[str],
    AfterValidator(known_scorers),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "oneOf": [
                    {"const": scorer.name, "description": scorer.sentence}
                    for scorer in SCORERS.values()
                ]
            },
            "minItems": 1,
            "uniqueItems": True,
        }
    ),
]


def several_names(text: str) -> str:
    """Names of classes, separated by commas.

    Raises:
        ValueError: There are fewer than two.
    """
    if len(set(split_names(text))) < 2:  # noqa: PLR2004 - nothing to compare
        raise ValueError(f"{text!r} has no two names, separated by a comma, such as cat,dog")
    return text


def without_classes(
    clusters: int | Literal["auto"] | None, info: ValidationInfo
) -> int | Literal["auto"] | None:
    """The clusters, where no names of classes are given.

    Raises:
        ValueError: Both would make labels.
    """
    if clusters is not None and info.data.get("classes") is not None:
        raise ValueError("both classes and clusters would make labels: give one of them")
    return clusters


def with_tags(separator: str | None, info: ValidationInfo) -> str | None:
    """The separator, where there are tags to separate.

    Raises:
        ValueError: There are none.
    """
    if separator is not None and info.data.get("tags") is None:
        raise ValueError("there are no tags to separate: name their column, too")
    return separator


def some_columns(text: str) -> str:
    """Names of columns, separated by commas.

    Raises:
        ValueError: There is none.
    """
    if not split_names(text):
        raise ValueError(f"{text!r} names no column, such as tags or has_*")
    return text


TagNames = Annotated[str, Field(max_length=100_000), AfterValidator(some_columns)]
Separator = Annotated[str, Field(min_length=1, max_length=20), AfterValidator(with_tags)]
NamesInOrder = Annotated[str, Field(max_length=100_000), AfterValidator(names_in_order)]
ClassNames = Annotated[str, Field(max_length=100_000), AfterValidator(several_names)]
Clusters = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=2, le=1000)], AfterValidator(without_classes)
]


Corruption = Annotated[
    str,
    AfterValidator(known_corruption),
    WithJsonSchema({"type": "string", "pattern": r"^\w{1,40}:[1-5]$"}),
]
Actors = Annotated[str, AfterValidator(lambda text: parse_actors(text) and text)]


def known_strategies(text: str) -> str:
    """Names of strategies with commas between, each at most once and perhaps with its share.

    Raises:
        ValueError: A name is unknown or there twice, or a share is no number from 1 to 1,000.
    """
    shares = strategy_shares(text)
    if not shares or len(shares) < len(split_names(text)):
        raise ValueError(f"{text!r} should name one strategy or more, each at most once")
    return text


def strategy_shares(text: str) -> dict[str, int]:
    """The share of each strategy of a mixture, such as random:3,hard.

    Raises:
        ValueError: As for `known_strategies`.
    """
    shares: dict[str, int] = {}
    for part in split_names(text):
        name, colon, number = part.partition(":")
        if name not in STRATEGIES:
            raise ValueError(
                f"{name!r} is no strategy; {did_you_mean(name, STRATEGIES)}expected some of "
                f"{', '.join(STRATEGIES)}"
            )
        match = re.fullmatch(r"[1-9]\d{0,2}|1000", number or "1")
        if match is None or bool(colon) > bool(number):
            raise ValueError(f"{part!r}: the share of a strategy is a whole number from 1 to 1000")
        shares[name] = int(number or 1)
    return shares


Strategies = Annotated[str, AfterValidator(known_strategies)]
