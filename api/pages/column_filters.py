"""Columns beside the scores on the pages: filters, orders, and what captions say."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from api.results.column_conditions import ASCENDING, DESCENDING, HAS, IS, MAX, MIN, by_parameter
from api.results.conditions import ImageQuery
from difficulty_service.bodies.results import ColumnKind
from difficulty_service.reports.sample_columns import (
    MISSING,
    PRESENT,
    SampleColumn,
    SampleColumns,
)

MOST_BOXES = 8
"""Number of values of a category up to which each has a box; more are in a list."""

ORDERS: Mapping[ColumnKind, tuple[str, str]] = {
    "category": ("in order", "in reverse order"),
    "number": ("smallest first", "largest first"),
    "date": ("earliest first", "latest first"),
}


@dataclass(frozen=True)
class Choice:
    """A value of a category, and how many samples have it."""

    value: str
    count: int
    is_chosen: bool


@dataclass(frozen=True)
class ColumnFilter:
    """The filter by one column, as a form shows it.

    Attributes:
        choices: The values of a category.
        entered: What a condition asks for: a text, or both ends of a range.
        bounds: The smallest and the largest value.
    """

    name: str
    kind: ColumnKind
    choices: Sequence[Choice] = ()
    entered: tuple[str, str] = ("", "")
    bounds: tuple[str, str] = ("", "")

    @property
    def has_boxes(self) -> bool:
        """Whether each value has a box."""
        return len(self.choices) <= MOST_BOXES

    @property
    def is_used(self) -> bool:
        """Whether there is a condition on the column."""
        return self.num_chosen > 0 or any(self.entered)

    @property
    def num_chosen(self) -> int:
        """Number of values that are asked for."""
        return sum(choice.is_chosen for choice in self.choices)

    @property
    def input_type(self) -> str:
        """The kind of entry of a range; that of days cannot show a time."""
        if self.kind == "number":
            return "number"
        return "date" if all(map(_is_day_or_empty, self.entered)) else "text"


def _is_day_or_empty(text: str) -> bool:
    try:
        return not text or date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def column_filters(columns: SampleColumns, query: ImageQuery) -> Sequence[ColumnFilter]:
    """The filter by each column."""
    given = by_parameter(query.columns)
    return [_filter(column, given) for column in columns.values()]


def _filter(column: SampleColumn, given: Mapping[str, Sequence[str]]) -> ColumnFilter:
    name, kind = column.name, column.kind
    if kind == "category":
        chosen = given.get(f"{IS}{name}", ())
        *counts, num_missing = column.counts
        choices = [
            Choice(value, count, value in chosen)
            for value, count in (
                *zip(column.categories, counts, strict=True),
                (PRESENT, sum(counts) if num_missing else 0),
                (MISSING, num_missing),
            )
            if count or value in chosen
        ]
        return ColumnFilter(name, kind, choices)
    if kind == "text":
        return ColumnFilter(name, kind, entered=(_first(given, f"{HAS}{name}"), ""))
    entered = (_first(given, f"{MIN}{name}"), _first(given, f"{MAX}{name}"))
    return ColumnFilter(name, kind, entered=entered, bounds=column.bounds)


def _first(given: Mapping[str, Sequence[str]], parameter: str) -> str:
    return next(iter(given.get(parameter, ())), "")


def column_orders(columns: SampleColumns) -> dict[str, str]:
    """The orders by columns, with their names for people."""
    return {
        f"{direction}{column.name}": f"{column.name}, {words}"
        for column in columns.values()
        if column.can_sort
        for direction, words in zip((ASCENDING, DESCENDING), ORDERS[column.kind], strict=True)
    }


def captions(
    columns: SampleColumns, query: ImageQuery, rows: Iterable[int]
) -> Mapping[int, Sequence[tuple[str, str | None]]]:
    """For each row, the columns that a list is filtered or sorted by, with their values."""
    shown = [columns[name] for name in query.shown_columns if name in columns]
    return {row: [(column.name, column.at([row])[0]) for column in shown] for row in rows if shown}
