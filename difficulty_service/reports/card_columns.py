"""Columns beside the scores in a report: filters of the cards, and what captions say of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from difficulty_service.bodies.results import ColumnKind
from difficulty_service.reports.sample_columns import (
    MISSING,
    SampleColumn,
    SampleColumns,
    shorten_value,
)

LONGEST_TEXT = 100
"""Characters of a text, of which a page has one for each column and sample."""

DIGITS = 12
"""Significant digits of a number that is compared."""


@dataclass(frozen=True)
class CardColumn:
    """A column of the samples that a page shows.

    Attributes:
        choices: Place, name and number of cards of each value of a category that a card has.
        bounds: The smallest and the largest value of the cards.
        data: Values for scripts, which are JSON: the text of each card, or its place in the texts
            of a category, and of ranges the number.
    """

    name: str
    kind: ColumnKind
    choices: Sequence[tuple[int, str, int]]
    bounds: tuple[str, str]
    data: Mapping[str, Any]


def card_columns(columns: SampleColumns, rows: Sequence[int]) -> Sequence[CardColumn]:
    """The columns of the samples of some rows, without those of which none has a value."""
    taken = [column.take(rows) for column in columns.values()]
    return [_card_column(column) for column in taken if not column.is_missing.all()]


def _card_column(column: SampleColumn) -> CardColumn:
    kind = column.kind
    if kind == "category":
        values = (*column.categories, MISSING)
        choices = [
            (place, value, count)
            for place, (value, count) in enumerate(zip(values, column.counts, strict=True))
            if count
        ]
        places = [
            len(column.categories) if math.isnan(place) else int(place)
            for place in column.numbers.tolist()
        ]
        data = {"texts": values, "places": places}
        return CardColumn(column.name, kind, choices, ("", ""), _described(column, data))
    texts = {
        "texts": [
            text and shorten_value(text, LONGEST_TEXT)
            for text in column.at(range(len(column.is_missing)))
        ]
    }
    if kind == "text":
        return CardColumn(column.name, kind, [], ("", ""), _described(column, texts))
    numbers = [
        float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None
        for number in column.numbers.tolist()
    ]
    data = {**texts, "numbers": numbers}
    return CardColumn(column.name, kind, [], column.bounds, _described(column, data))


def _described(column: SampleColumn, data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": column.name, "kind": column.kind, **data}
