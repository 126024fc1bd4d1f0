"""Conditions and orders by columns beside the scores, as an address spells them.

`is.camera=A` is a category, `is.camera=(none)` no value and `is.camera=(some)` any value,
`has.note=blurred` a text inside, `min.date=2024-01-31` and `max.date=2024-02-29` the ends of a
range, both included, and `sort=desc.date` an order.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from api.results.score_pages import BadQuery
from difficulty_service.base.wording import did_you_mean, list_names
from difficulty_service.reports.sample_columns import (
    MISSING,
    PRESENT,
    SampleColumn,
    SampleColumns,
)
from difficulty_service.scores.score_columns import FAULT_COLUMN
from difficulty_service.scoring.image_faults import FAULT_NAMES

IS, HAS, MIN, MAX = "is.", "has.", "min.", "max."
ASCENDING, DESCENDING = "asc.", "desc."

MOST_CONDITIONS = 200
LONGEST = 1000
MOST_TEXTS = 10
"""Number of texts that are looked for in columns of texts, at once."""

LONGEST_SOUGHT = 200
"""Characters of a text that is looked for inside of others. RE2 finds texts of this length in time
that is linear in the column; a thousand equal letters take it thousands of times as long."""

SLICE_BYTES = 4 << 20
"""Texts that are searched before the search is asked whether it goes on; a few milliseconds."""

SHOWN = 100
"""Characters of a wrong name or value that a message repeats."""

ColumnConditions: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of parameters, such as ("is.camera", "A"), in the order of the names."""


def column_conditions(parameters: Iterable[tuple[str, str]]) -> ColumnConditions:
    """The parameters of an address that are conditions on columns, without the empty ones.

    Raises:
        BadQuery: There are too many, or one is too long.
    """
    found = {
        pair for pair in parameters if pair[0].startswith(tuple(OPERATORS)) and pair[1].strip()
    }
    if len(found) > MOST_CONDITIONS:
        raise BadQuery(
            "query",
            f"{len(found):,} conditions on columns are more than {MOST_CONDITIONS}",
            "leave some out",
        )
    for name, value in found:
        if max(len(name), len(value)) > LONGEST:
            raise BadQuery(name[:SHOWN], f"a condition has more than {LONGEST} characters")
    return tuple(sorted(found))


def by_parameter(conditions: ColumnConditions) -> Mapping[str, Sequence[str]]:
    """The values of each parameter."""
    values: dict[str, list[str]] = defaultdict(list)
    for name, value in conditions:
        values[name].append(value)
    return values


def named_columns(conditions: ColumnConditions, sort: str) -> list[str]:
    """Names of the columns that a list is filtered or sorted by, each once."""
    names = [name.partition(".")[2] for name, _ in conditions]
    if sort.startswith((ASCENDING, DESCENDING)):
        names.append(sort.partition(".")[2])
    return list(dict.fromkeys(names))


def nothing() -> None:
    """Lets a search go on to its end."""


def column_masks(
    columns: SampleColumns, conditions: ColumnConditions, go_on: Callable[[], None] = nothing
) -> Iterator[NDArray[np.bool_]]:
    """Which samples fulfil the conditions on each parameter. Each of shape (samples,).

    Of several values of a category, one is enough. A search in texts calls `go_on` now and then,
    which may raise an exception to end it.

    Raises:
        BadQuery: There is no such column, a value does not fit it, or they are too many texts.
    """
    wanted = [
        _Condition(parameter, _column(columns, parameter.partition(".")[2], parameter), values)
        for parameter, values in by_parameter(conditions).items()
    ]
    number = sum(each.num_texts for each in wanted)
    if number > MOST_TEXTS:
        raise BadQuery(
            "query",
            f"{number} texts are more than the {MOST_TEXTS} that are looked for at once",
            "leave some out",
        )
    for each in wanted:
        go_on()
        yield each.mask(go_on)


def search_texts(
    texts: pa.StringArray,
    find: Callable[[pa.StringArray], pa.BooleanArray],
    go_on: Callable[[], None],
) -> NDArray[np.bool_]:
    """Which texts `find` finds, a slice at a time; a missing one is not found. Shape (texts,)."""
    mask = np.zeros(len(texts), bool)
    rows = max(1, len(texts) * SLICE_BYTES // max(1, texts.nbytes))
    for first in range(0, len(texts), rows):
        go_on()
        found = find(texts.slice(first, rows)).fill_null(False)  # noqa: FBT003 - of Arrow
        mask[first : first + rows] = found.to_numpy(zero_copy_only=False)
    return mask


@dataclass(frozen=True)
class _Condition:
    """The values of one parameter, of which one is enough."""

    parameter: str
    column: SampleColumn
    values: Sequence[str]

    @property
    def num_texts(self) -> int:
        """Number of texts that are looked for in a column of texts."""
        return len({*self.values} - {MISSING, PRESENT}) if self.column.kind == "text" else 0

    def mask(self, go_on: Callable[[], None]) -> NDArray[np.bool_]:
        """Which samples fulfil the condition. Shape (samples,)."""
        return OPERATORS[f"{self.parameter.partition('.')[0]}."](self, go_on)


def sort_keys(columns: SampleColumns, sort: str) -> NDArray[np.float64]:
    """Keys of the order `asc.NAME` or `desc.NAME`, NaN where a sample has no value."""
    column = _column(columns, sort.partition(".")[2], "sort")
    if not column.can_sort:
        raise BadQuery(
            "sort", f"the column {column.name[:SHOWN]!r} holds texts, which have no order here"
        )
    return -column.numbers if sort.startswith(DESCENDING) else column.numbers.copy()


def _column(columns: SampleColumns, name: str, parameter: str) -> SampleColumn:
    if name in columns:
        return columns[name]
    if name == FAULT_COLUMN:
        raise BadQuery(
            parameter[:SHOWN],
            "these scores do not tell how images look: faults are found in images as they are "
            "encoded, not in texts or in features that were made elsewhere",
            "score the images themselves",
        )
    if not columns:
        raise BadQuery(
            parameter[:SHOWN],
            f"there is no column {name[:SHOWN]!r}, and none at all beside the scores",
            "attach a table on the page Columns, or `difficulty explore SCORES --columns TABLE`",
        )
    raise BadQuery(
        parameter[:SHOWN],
        f"there is no column {name[:SHOWN]!r}; {did_you_mean(name[:SHOWN], columns)}the columns "
        f"are {list_names(list(columns), 20)}",
    )


def _is_one_of(condition: _Condition, go_on: Callable[[], None]) -> NDArray[np.bool_]:
    column, values = condition.column, {*condition.values}
    others = values - {MISSING, PRESENT}
    mask = np.zeros(len(column.is_missing), bool)
    if column.kind == "text":
        if others:
            sought = pa.array(sorted(others), pa.string())
            mask = search_texts(column.texts, lambda part: pc.is_in(part, sought), go_on)
    elif column.kind == "category":
        # The last place is that of samples without a value.
        is_sought = np.zeros(len(column.categories) + 1, bool)
        for value in condition.values:
            if (
                value in others
                and (place := _place(column, value, condition.parameter)) is not None
            ):
                is_sought[place] = True
        mask = is_sought[np.where(column.is_missing, -1, column.numbers).astype(np.int64)]
    elif others:
        raise _unfitting(column, condition.parameter)
    if MISSING in values:
        mask |= column.is_missing
    if PRESENT in values:
        mask |= ~column.is_missing
    return mask


def _place(column: SampleColumn, value: str, parameter: str) -> int | None:
    """The place of a category; None of a fault of images that no sample has."""
    if value in column.categories:
        return column.categories.index(value)
    faults = FAULT_NAMES if column.name == FAULT_COLUMN else ()
    if value in faults:
        return None
    values = tuple(dict.fromkeys((*column.categories, *faults)))
    raise BadQuery(
        parameter,
        f"the column {column.name[:SHOWN]!r} has no value {value[:SHOWN]!r}; "
        f"{did_you_mean(value[:SHOWN], values)}its values are {list_names(values, 20)}",
    )


def _has(condition: _Condition, go_on: Callable[[], None]) -> NDArray[np.bool_]:
    column, parameter = condition.column, condition.parameter
    if column.texts is None:
        raise _unfitting(column, parameter)
    if max(map(len, condition.values)) > LONGEST_SOUGHT:
        raise BadQuery(
            parameter[:SHOWN],
            f"a text to look for has more than {LONGEST_SOUGHT} characters",
            "look for a part of it",
        )
    # All in one pass, however many there are.
    pattern = "|".join(map(re.escape, condition.values))

    def find(part: pa.StringArray) -> pa.BooleanArray:
        return pc.match_substring_regex(part, pattern, ignore_case=True)

    return search_texts(column.texts, find, go_on)


def _is_from(condition: _Condition, _go_on: Callable[[], None]) -> NDArray[np.bool_]:
    return condition.column.numbers >= min(bound for bound, _ in _bounds(condition))


def _is_up_to(condition: _Condition, _go_on: Callable[[], None]) -> NDArray[np.bool_]:
    # Of two equal ends, the one that is included is the later.
    bound, is_day = max(_bounds(condition), key=lambda each: (each[0], not each[1]))
    numbers = condition.column.numbers
    return numbers < bound if is_day else numbers <= bound


OPERATORS: Mapping[str, Callable[[_Condition, Callable[[], None]], NDArray[np.bool_]]] = {
    IS: _is_one_of,
    HAS: _has,
    MIN: _is_from,
    MAX: _is_up_to,
}
"""Which samples fulfil a condition, by the beginning of its parameter. Each of shape (samples,)."""


def _bounds(condition: _Condition) -> list[tuple[float, bool]]:
    return [_bound(condition.column, value, condition.parameter) for value in condition.values]


def _bound(column: SampleColumn, value: str, parameter: str) -> tuple[float, bool]:
    """A number, or a moment in seconds; the end of a day is excluded, as the next one begins."""
    if column.kind == "date":
        return _moment(value, parameter, is_end=parameter.startswith(MAX))
    if column.kind != "number":
        raise _unfitting(column, parameter)
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if np.isnan(number):
        raise BadQuery(parameter, f"{value[:SHOWN]!r} is not a number")
    return number, False


def _moment(value: str, parameter: str, *, is_end: bool) -> tuple[float, bool]:
    try:
        try:
            day = date.fromisoformat(value.strip())
            moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
            return (moment + timedelta(days=is_end)).timestamp(), is_end
        except ValueError:
            moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp(), False
    except (OverflowError, ValueError):
        raise BadQuery(
            parameter, f"{value[:SHOWN]!r} is not a date, such as 2024-01-31 or 2024-01-31T12:30"
        ) from None


def _unfitting(column: SampleColumn, parameter: str) -> BadQuery:
    what = {"category": "a few values", "text": "texts"}.get(column.kind, f"{column.kind}s")
    operator = {"category": IS, "text": HAS}.get(column.kind, MIN)
    return BadQuery(
        parameter[:SHOWN],
        f"the column {column.name[:SHOWN]!r} has {what}",
        f"ask for {operator}{column.name[:SHOWN]}",
    )
