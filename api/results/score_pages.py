"""Pages of a score file in any order, read without loading the whole file."""

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from api.http.parameters import identity_of, parse_decimal, read_cursor, write_cursor
from api.jobs.failures import remedy_for_clients
from difficulty_service.scores.file import METADATA_KEY, SCHEMA
from difficulty_service.scores.score_columns import absent_column

BATCH_ROWS = 1 << 16
SORTABLE = tuple(
    field.name for field in SCHEMA if pa.types.is_floating(field.type) or field.name == "label"
)
"""Columns to sort by; float64 represents all of them exactly."""

CURSOR = ">8s?dq"  # order, whether the value is missing, sort key and row


class BadQuery(ValueError):
    """The query has a column, label or cursor that does not fit the file.

    `remedy` says what to do besides correcting it; empty where there is nothing.
    """

    def __init__(self, field: str, detail: str, remedy: str = "") -> None:
        super().__init__(detail)
        self.field = field
        self.remedy = remedy


def absent(column: str, others: Collection[str]) -> BadQuery:
    """For an order by a column that the scores do not have; `others` are orders that they have."""
    error = absent_column(column, tuple(others), "the score file of this job")
    remedy = remedy_for_clients(error, {}) or f"sort by one of {', '.join(others)}"
    return BadQuery("sort", error.problem, remedy)


@dataclass(frozen=True)
class PageQuery:
    """Query for a page of at most `limit` rows, of one class unless `label` is None.

    Rows are sorted by `keys` or by one of SORTABLE, with a leading `-` in descending order; those
    without a value come last, and ties are in the order of the file.
    """

    sort: str
    label: str | None  # name or index
    limit: int
    after: str | None  # `next` of the previous page
    only: NDArray[np.int64] | None = None  # rows that may be listed, ascending; None for all
    keys: NDArray[np.float64] | None = None  # of all rows, ascending, in place of a column's values
    conditions: object = None  # JSON values that tell `only` from others


@dataclass(frozen=True)
class Page:
    """A page of a score file."""

    rows: list[dict[str, Any]]  # by column; None instead of numbers that are not finite
    matching: int  # number of rows of the file with the label
    next: str | None  # cursor of the next page; None at the end


@dataclass(frozen=True)
class _Candidates:
    """Rows with their sort keys; ascending `keys` are in the requested order."""

    missing: NDArray[np.bool_]
    keys: NDArray[np.float64]
    rows: NDArray[np.int64]

    def take(self, chosen: NDArray[Any]) -> "_Candidates":
        return _Candidates(self.missing[chosen], self.keys[chosen], self.rows[chosen])

    def best(self, number: int) -> "_Candidates":
        """The first rows in order."""
        return self.take(np.lexsort((self.rows, self.keys, self.missing))[:number])

    def after(self, missing: bool, key: float, row: int) -> "_Candidates":  # noqa: FBT001
        """The rows that follow a row in order."""
        same = self.missing == missing
        follows = (self.keys > key) | ((self.keys == key) & (self.rows > row))
        return self.take((self.missing & (not missing)) | (same & follows))

    def last(self) -> tuple[bool, float, int]:
        return bool(self.missing[-1]), float(self.keys[-1]), int(self.rows[-1])

    def joined(self, other: "_Candidates") -> "_Candidates":
        return _Candidates(
            np.concatenate((self.missing, other.missing)),
            np.concatenate((self.keys, other.keys)),
            np.concatenate((self.rows, other.rows)),
        )


def read_page(file: pq.ParquetFile, query: PageQuery) -> Page:
    """One page of a score file.

    Memory is bounded by a batch and a page, whatever the size of the file: the first pass reads the
    columns that decide, the second one picks the rows of the page.

    Raises `BadQuery` where the query does not fit the file.
    """
    if query.keys is None:
        column, descending = _sorting(query.sort, file.schema_arrow.names)
    else:
        column, descending = "label", False
    label = _label(file, query.label)
    last = None if query.after is None else _read_cursor(query)
    first = _Candidates(np.empty(0, bool), np.empty(0), np.empty(0, np.int64))
    matching = 0
    for batch in _candidates(file, column, label, descending=descending):
        if query.keys is not None:
            keys = query.keys[batch.rows]
            missing = np.isnan(keys)
            batch = _Candidates(missing, np.where(missing, 0.0, keys), batch.rows)
        if query.only is not None:
            batch = batch.take(np.isin(batch.rows, query.only, assume_unique=True))
        matching += len(batch.rows)
        following = batch if last is None else batch.after(*last)
        first = first.joined(following).best(query.limit + 1)
    page = first.take(np.arange(min(query.limit, len(first.rows))))
    is_last = len(first.rows) <= query.limit
    return Page(
        rows=_read_rows(file, page.rows),
        matching=matching,
        next=None if is_last else write_cursor(CURSOR, _identity(query), *page.last()),
    )


def _sorting(text: str, present: Collection[str]) -> tuple[str, bool]:
    column = text.removeprefix("-")
    if column not in SORTABLE:
        raise BadQuery("sort", f"cannot sort by {column[:100]!r}, only by {', '.join(SORTABLE)}")
    if column not in present:
        raise absent(column, [name for name in SORTABLE if name in present])
    return column, text.startswith("-")


def _label(file: pq.ParquetFile, text: str | None) -> str | int | None:
    """The name of a class as text, or its index as a number."""
    if text is None:
        return None
    metadata = json.loads((file.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}"))
    names = metadata.get("class_names", [])
    if text in names:
        return text
    index = parse_decimal(text, len(names) - 1) if names else None
    if index is not None:
        return index
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")  # noqa: PLR2004
    raise BadQuery("label", f"there is no class {text[:100]!r}; the classes are: {shown}")


def _candidates(
    file: pq.ParquetFile, column: str, label: str | int | None, *, descending: bool
) -> Iterator[_Candidates]:
    """The rows with the label, batch by batch."""
    label_column = {str: "label_name", int: "label"}.get(type(label))
    columns = list(dict.fromkeys([column, *([label_column] if label_column else [])]))
    first = 0
    for batch in file.iter_batches(BATCH_ROWS, columns=columns):
        values = batch[column].cast(pa.float64()).to_numpy(zero_copy_only=False)
        rows = np.arange(first, first + len(batch), dtype=np.int64)
        first += len(batch)
        missing = np.isnan(values)
        keys = np.where(missing, 0.0, -values if descending else values)
        candidates = _Candidates(missing, keys, rows)
        if label_column is not None:
            same = pc.equal(batch[label_column], label)
            candidates = candidates.take(np.asarray(same.to_numpy(zero_copy_only=False), bool))
        yield candidates


def _read_rows(file: pq.ParquetFile, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Every column of some rows, in the order given."""
    read: dict[int, dict[str, Any]] = {}
    first = 0
    for group in range(file.num_row_groups):
        stop = first + file.metadata.row_group(group).num_rows
        if ((rows >= first) & (rows < stop)).any():
            start = first
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group]):
                inside = rows[(rows >= start) & (rows < start + len(batch))]
                picked = batch.take(pa.array(inside - start)).to_pylist()
                read |= dict(zip(inside.tolist(), picked, strict=True))
                start += len(batch)
        first = stop
    return [{name: _plain(value) for name, value in read[row].items()} for row in rows.tolist()]


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    """The value, or None for a number that is not finite, which JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _identity(query: PageQuery) -> bytes:
    conditions = [] if query.conditions is None else [query.conditions]
    return identity_of([query.sort, query.label, *conditions])


def _read_cursor(query: PageQuery) -> tuple[bool, float, int]:
    identity, missing, key, row = read_cursor(CURSOR, query.after or "") or (b"", False, 0.0, 0)
    if not identity:
        raise BadQuery("after", "this is not a cursor; pass `next` of the previous page")
    if identity != _identity(query) or math.isnan(key):
        raise BadQuery(
            "after", "this cursor belongs to another sort or other conditions; leave it out"
        )
    return missing, key, row
