"""Columns beside the scores, such as camera or date, by which people filter, sort and caption.

A column of few values is a category, one of numbers or dates has ranges, and any other text is
searched. All but texts are numbers, NaN where a sample has no value, so that they compare alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.plain_columns import plain_column
from difficulty_service.bodies.results import ColumnKind
from difficulty_service.datasets.labels import is_text
from difficulty_service.scores.score_columns import FAULT_COLUMN

MOST_VALUES = 100
"""Number of different texts up to which a column is a category."""

MOST_WHOLE_VALUES = 20
"""Number of different whole numbers up to which a column is a category."""

LONGEST_VALUE = 200
"""Characters of a value that is shown, and of the texts of a category."""

LONGEST_NAME = 300
"""Characters of the name of a column."""

LARGEST_EXACT = 2**53
"""Whole numbers up to this one are exact in float64; larger ones are names, such as ids."""

ISO_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$"
"""Texts that may be dates."""

MISSING = "(none)"
"""What stands for no value in a filter by category."""

PRESENT = "(some)"
"""What stands for any value."""

NO_VALUE = "it has no value"
"""Why a column of nothing is not shown."""

MICROSECONDS = 1e6
DAY = 86_400


@dataclass(frozen=True)
class SampleColumn:
    """A column with a value for each sample, or none.

    Attributes:
        numbers: Places in `categories`, values, or dates in seconds since 1970, as `kind` says; NaN
            where there is none. Shape (samples,), or (0,) of a text.
        texts: The values of a text, null where there is none; None of other kinds.
        categories: The different values of a category, in their order.
        is_whole: Whether the numbers are whole, or the dates days.
        is_utc: Whether the table names the zone of dates, which are in UTC here.
    """

    name: str
    kind: ColumnKind
    numbers: NDArray[np.float64]
    texts: pa.StringArray | None = None
    categories: tuple[str, ...] = ()
    is_whole: bool = False
    is_utc: bool = False

    @property
    def can_sort(self) -> bool:
        """Whether samples can be in the order of the column."""
        return self.kind != "text"

    @cached_property
    def is_missing(self) -> NDArray[np.bool_]:
        """Whether a sample has no value. Shape (samples,)."""
        if self.texts is not None:
            return self.texts.is_null().to_numpy(zero_copy_only=False)
        return np.isnan(self.numbers)

    @cached_property
    def counts(self) -> Sequence[int]:
        """Number of samples of each category, and last of those with none."""
        places = np.where(self.is_missing, len(self.categories), self.numbers).astype(np.int64)
        counts: list[int] = np.bincount(places, minlength=len(self.categories) + 1).tolist()
        return counts

    @cached_property
    def bounds(self) -> tuple[str, str]:
        """The smallest and largest value in words; empty where there is none."""
        known = self.numbers[np.isfinite(self.numbers)]
        if not len(known):
            return "", ""
        return self.spell(float(known.min())), self.spell(float(known.max()))

    def spell(self, number: float) -> str:
        """A number of the column as people read it."""
        if self.kind == "category":
            return self.categories[int(number)]
        if self.kind == "date":
            return self._spell_date(number)
        if self.is_whole:
            return str(int(number))
        return f"{number:.6g}"

    def _spell_date(self, seconds: float) -> str:
        text = str(np.datetime64(int(seconds // 1), "s")).replace("T", " ")
        if self.is_whole:
            return text.removesuffix(" 00:00:00")
        return f"{text} UTC" if self.is_utc else text

    def at(self, rows: Iterable[int]) -> list[str | None]:
        """The values of some samples as people read them; None where there is none."""
        return [self._value(row) for row in rows]

    def _value(self, row: int) -> str | None:
        if self.is_missing[row]:
            return None
        if self.texts is None:
            return self.spell(float(self.numbers[row]))
        text: str = self.texts[row].as_py()
        return shorten_value(text)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> "SampleColumn":
        """The same of some samples, with all categories; a row below 0 has no value."""
        places = np.asarray(rows, np.int64)
        is_absent = places < 0
        if self.texts is not None:
            texts, numbers = self.texts.take(pa.array(places, mask=is_absent)), self.numbers
        else:
            texts, numbers = None, np.where(is_absent, np.nan, self.numbers[places])
        return SampleColumn(
            self.name, self.kind, numbers, texts, self.categories, self.is_whole, self.is_utc
        )


SampleColumns: TypeAlias = Mapping[str, SampleColumn]
"""Columns by their names, in their order."""


def shorten_value(text: str, longest: int = LONGEST_VALUE) -> str:
    """A text with an ellipsis in place of what is too long to show."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def can_show(kind: pa.DataType) -> bool:
    """Whether a column of a type can be shown; lists, structures and bytes cannot."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_decimal,
            pa.types.is_date,
            pa.types.is_timestamp,
            is_text,
        )
    )


def fault_columns(scores: pa.Table) -> SampleColumns:
    """The faults of images as a column, where scores tell how images look; it may have no value."""
    if FAULT_COLUMN not in scores.column_names:
        return {}
    column = to_sample_column(FAULT_COLUMN, scores[FAULT_COLUMN])
    if isinstance(column, str):  # no image has a fault
        column = SampleColumn(FAULT_COLUMN, "category", np.full(len(scores), np.nan))
    return {FAULT_COLUMN: column}


def with_values(columns: SampleColumns) -> SampleColumns:
    """The columns of which at least one sample has a value."""
    return {name: column for name, column in columns.items() if not column.is_missing.all()}


def to_sample_column(name: str, column: pa.ChunkedArray) -> SampleColumn | str:
    """A column of a table, one value for each sample; the reason where it cannot be shown."""
    if not can_show(column.type):
        return str(column.type)
    if len(name) > LONGEST_NAME:
        return f"its name has more than {LONGEST_NAME} characters"
    if column.null_count == len(column):
        return NO_VALUE
    try:
        return _convert(name, plain_column(column))
    except pa.ArrowException as error:
        return str(error)[:LONGEST_VALUE]


def _convert(name: str, column: pa.ChunkedArray) -> SampleColumn | str:
    kind = column.type
    if is_text(kind):
        return _of_texts(name, column)
    if pa.types.is_boolean(kind):
        places = _floats(column.cast(pa.int8()))
        return SampleColumn(name, "category", places, categories=("false", "true"))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _of_dates(name, column)
    if pa.types.is_integer(kind):
        return _of_integers(name, column)
    numbers = _floats(column)
    if np.isnan(numbers).all():
        return NO_VALUE
    return SampleColumn(name, "number", numbers)


def _of_texts(name: str, column: pa.ChunkedArray) -> SampleColumn | str:
    texts = _combined(column.cast(pa.string()))
    # A form leaves a blank value out of the address, and nobody could see it in a list.
    is_blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
    texts = pc.if_else(is_blank, pa.scalar(None, pa.string()), texts)
    if texts.null_count == len(texts):
        return NO_VALUE
    if (dates := _dates_in(texts)) is not None:
        return _of_dates(name, dates)
    values = pc.unique(texts.drop_null())
    longest = pc.max(pc.utf8_length(values)).as_py()
    if len(values) > MOST_VALUES or longest > LONGEST_VALUE:
        return SampleColumn(name, "text", np.empty(0), texts)
    return _of_categories(name, texts, sorted(values.to_pylist()))


def _dates_in(texts: pa.StringArray) -> pa.ChunkedArray | None:
    """The dates that texts stand for; None where one of them is no date in ISO 8601."""
    is_date = pc.match_substring_regex(texts, ISO_DATE)
    if not pc.all(is_date).as_py():
        return None
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pa.chunked_array([texts.cast(kind)])
        except pa.ArrowException:
            continue  # with zones where none may be, or the other way round
    return None


def _of_integers(name: str, column: pa.ChunkedArray) -> SampleColumn | str:
    limits = pc.min_max(column).as_py()
    if max(abs(limits["min"]), abs(limits["max"])) > LARGEST_EXACT:
        return _of_texts(name, column)
    values = pc.unique(column.drop_null())
    if len(values) > MOST_WHOLE_VALUES:
        return SampleColumn(name, "number", _floats(column), is_whole=True)
    ordered = [str(value) for value in sorted(values.to_pylist())]
    return _of_categories(name, _combined(column.cast(pa.string())), ordered)


def _of_categories(name: str, texts: pa.StringArray, categories: Sequence[str]) -> SampleColumn:
    places = pc.index_in(texts, value_set=pa.array(categories, pa.string()), skip_nulls=True)
    return SampleColumn(name, "category", _floats(places), categories=tuple(categories))


def _of_dates(name: str, column: pa.ChunkedArray) -> SampleColumn:
    zone = getattr(column.type, "tz", None)
    moments = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    seconds = _floats(moments) / MICROSECONDS
    is_whole = zone is None and not (seconds[~np.isnan(seconds)] % DAY).any()
    return SampleColumn(name, "date", seconds, is_whole=is_whole, is_utc=zone is not None)


def _floats(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    numbers = column.cast(pa.float64(), safe=False).fill_null(np.nan)
    array: NDArray[np.float64] = np.array(numbers.to_numpy(zero_copy_only=False), np.float64)
    return array


def _combined(column: pa.ChunkedArray) -> pa.StringArray:
    return pa.concat_arrays([pa.array([], pa.string()), *column.chunks])
