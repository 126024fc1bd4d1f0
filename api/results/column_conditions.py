"""Conditions and orders by columns beside the scores, as an address spells them.

`is.camera=A` is a category, `is.camera=(none)` no value and `is.camera=(some)` any value,
`has.note=blurred` a text inside, `min.date=2024-01-31` and `max.date=2024-02-29` the ends of a
range, both included, and `sort=desc.date` an order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from api.results.score_pages import BadQuery
from difficulty_service.base.wording import did_you_mean, list_names
from difficulty_service.review.sample_columns import (
    MISSING,
    PRESENT,
    SampleColumn,
    SampleColumns,
)
from difficulty_service.score_columns import FAULT_COLUMN
from difficulty_service.scores.image_faults import FAULT_NAMES

IS, HAS, MIN, MAX = "is.", "has.", "min.", "max."
OPERATORS = (IS, HAS, MIN, MAX)
ASCENDING, DESCENDING = "asc.", "desc."

MOST_CONDITIONS = 200
LONGEST = 1000
SHOWN = 100
"""Characters of a wrong name or value that a message repeats."""

ColumnConditions: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of parameters, such as ("is.camera", "A"), in the order of the names."""


def column_conditions(parameters: Iterable[tuple[str, str]]) -> ColumnConditions:
    """The parameters of an address that are conditions on columns, without the empty ones.

    Raises:
        BadQuery: There are too many, or one is too long.
    """
    found = {pair for pair in parameters if pair[0].startswith(OPERATORS) and pair[1].strip()}
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


def column_masks(columns: SampleColumns, conditions: ColumnConditions) -> list[NDArray[np.bool_]]:
    """Which samples fulfil the conditions on each parameter. Each of shape (samples,).

    Of several values of a category, one is enough.

    Raises:
        BadQuery: There is no such column, or a value does not fit it.
    """
    masks = []
    for parameter, values in by_parameter(conditions).items():
        operator, _, name = parameter.partition(".")
        column = _column(columns, name, parameter)
        read = {"is": _is_one_of, "has": _has, "min": _is_from, "max": _is_up_to}[operator]
        masks.append(np.logical_or.reduce([read(column, value, parameter) for value in values]))
    return masks


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


def _is_one_of(column: SampleColumn, value: str, parameter: str) -> NDArray[np.bool_]:
    if value == PRESENT:
        return ~column.is_missing
    if column.kind == "text":
        found = pc.equal(column.texts, value).fill_null(False)  # noqa: FBT003 - of Arrow
        mask: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    elif column.kind == "category":
        # A fault that no image has is still one.
        faults = FAULT_NAMES if column.name == FAULT_COLUMN else ()
        values = tuple(dict.fromkeys((*column.categories, *faults)))
        if value not in {*values, MISSING}:
            raise BadQuery(
                parameter,
                f"the column {column.name[:SHOWN]!r} has no value {value[:SHOWN]!r}; "
                f"{did_you_mean(value[:SHOWN], values)}its values are {list_names(values, 20)}",
            )
        known = value in column.categories
        mask = column.numbers == (column.categories.index(value) if known else -1)
    elif value != MISSING:
        raise _unfitting(column, parameter, MIN)
    else:
        mask = np.zeros(len(column.numbers), bool)
    return mask | column.is_missing if value == MISSING else mask


def _has(column: SampleColumn, value: str, parameter: str) -> NDArray[np.bool_]:
    if column.texts is None:
        raise _unfitting(column, parameter, IS if column.kind == "category" else MIN)
    found = pc.match_substring(column.texts, value, ignore_case=True)
    mask: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return mask


def _is_from(column: SampleColumn, value: str, parameter: str) -> NDArray[np.bool_]:
    return column.numbers >= _bound(column, value, parameter)[0]


def _is_up_to(column: SampleColumn, value: str, parameter: str) -> NDArray[np.bool_]:
    bound, is_day = _bound(column, value, parameter)
    return column.numbers < bound if is_day else column.numbers <= bound


def _bound(column: SampleColumn, value: str, parameter: str) -> tuple[float, bool]:
    """A number, or a moment in seconds; the end of a day is excluded, as the next one begins."""
    if column.kind == "date":
        return _moment(value, parameter, is_end=parameter.startswith(MAX))
    if column.kind != "number":
        raise _unfitting(column, parameter, HAS if column.kind == "text" else IS)
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


def _unfitting(column: SampleColumn, parameter: str, operator: str) -> BadQuery:
    what = {"category": "a few values", "text": "texts"}.get(column.kind, f"{column.kind}s")
    return BadQuery(
        parameter[:SHOWN],
        f"the column {column.name[:SHOWN]!r} has {what}",
        f"ask for {operator}{column.name[:SHOWN]}",
    )
