"""A page of the images that fulfil conditions, in an order, and the images around one."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.http.parameters import identity_of, read_cursor, write_cursor
from api.results.column_conditions import ASCENDING, DESCENDING, sort_keys
from api.results.conditions import (
    ALIKE,
    NOTHING_BESIDE,
    Beside,
    ImageQuery,
    alike_keys,
    matching_rows,
)
from api.results.first_places import first_places
from api.results.score_pages import BadQuery, absent
from difficulty_service.bodies.marks import ListOrder
from difficulty_service.scores.samples import AGNOSTIC, SUSPICION, ScoredSamples

SORTS: Mapping[ListOrder, str] = {
    "doubtful": "Doubtful labels first",
    "suspicion": "Likeliest wrong first",
    "hardest": "Hardest first",
    "easiest": "Easiest first",
    "unusual": "Unlike anything first",
    "random": "At random, to learn how many are wrong",
    "file": "As in the dataset",
}
"""Orders of the images, with their names for people; `orders_of` has those of some scores."""

SORTS_OF_ONE_CLASS: Mapping[ListOrder, str] = {
    "doubtful": SORTS["unusual"],
    "easiest": "Most usual first",
    "random": "At random",
    "file": SORTS["file"],
}
"""The same of scores without classes to compare, where no label is more doubtful than another."""

CURSOR = ">8sdq"  # conditions, sort key and row


@dataclass(frozen=True)
class ImagePage:
    """One page of images."""

    rows: list[int]  # in the score file
    matching: NDArray[np.int64] | None  # as `matching_rows` gives them
    num_matching: int
    next: str  # cursor of the next page; empty at the end


def orders_of(samples: ScoredSamples) -> dict[ListOrder, str]:
    """The orders for which the scores have the column."""
    lacking = {"unusual"} if samples.agnostic is None else set()
    if samples.suspicion is None:
        lacking.add("suspicion")
    if not samples.compares_classes:  # whose usual order is that of unusual ones
        return {**SORTS_OF_ONE_CLASS}
    return {order: text for order, text in SORTS.items() if order not in lacking}


def find_images(
    samples: ScoredSamples, query: ImageQuery, limit: int, beside: Beside = NOTHING_BESIDE
) -> ImagePage:
    """One page of the images that fulfil the conditions.

    Raises `BadQuery` where a parameter cannot be read.
    """
    matching = matching_rows(samples, query, beside)
    keys = _keys(samples, query, matching, beside)
    rows, keys, following = _following(query, matching, keys)
    # One image more than shown says whether there is another page.
    places = first_places(keys, limit + 1)
    shown = places[:limit]
    found = shown if rows is None else rows[shown]
    is_last = len(places) <= limit
    return ImagePage(
        rows=found.tolist(),
        matching=matching,
        num_matching=following,
        next=""
        if is_last
        else write_cursor(CURSOR, _identity(query), float(keys[shown[-1]]), int(found[-1])),
    )


@dataclass(frozen=True)
class Neighbours:
    """The images around one in the order of a query."""

    place: int  # number of images before it
    previous: int | None  # row of the one before it; None at the beginning
    following: list[int]  # rows of some after it, in their order


def neighbours(
    samples: ScoredSamples,
    query: ImageQuery,
    row: int,
    number: int,
    beside: Beside = NOTHING_BESIDE,
) -> Neighbours:
    """The images around one, up to `number` of those after it.

    The image itself need not fulfil the conditions. Arguments and errors are those of
    `find_images`.
    """
    rows = matching_rows(samples, query, beside)
    rows = np.arange(len(samples)) if rows is None else rows
    keys = _keys(samples, query, rows, beside)
    own = _keys(samples, query, np.array([row]), beside)[0]
    follows = (keys > own) | ((keys == own) & (rows > row))
    precedes = (keys < own) | ((keys == own) & (rows < row))
    # Backwards, so that the last of equal keys comes first.
    before = first_places(-keys[precedes][::-1], 1)
    return Neighbours(
        place=int(precedes.sum()),
        previous=int(rows[precedes][::-1][before[0]]) if len(before) else None,
        following=rows[follows][first_places(keys[follows], number)].tolist(),
    )


def _keys(
    samples: ScoredSamples, query: ImageQuery, rows: NDArray[np.int64] | None, beside: Beside
) -> NDArray[np.float64]:
    """Sort keys of some rows: ascending, those without a value last."""
    if query.sort == "file":
        return np.zeros(len(samples) if rows is None else len(rows))
    values = _all_keys(samples, query, beside)
    keys = values if rows is None else values[rows]
    keys[np.isnan(keys)] = np.inf
    return keys


def _all_keys(samples: ScoredSamples, query: ImageQuery, beside: Beside) -> NDArray[np.float64]:
    """A new array with the keys of all rows, NaN where there is no value."""
    sort = query.sort
    if sort.startswith((ASCENDING, DESCENDING)):
        return sort_keys(beside.columns, sort)
    if sort == ALIKE and (query.like or query.text):
        return alike_keys(samples, query, beside)
    if sort not in SORTS:
        raise BadQuery("sort", f"there is no order {sort[:100]!r}; use {', '.join(SORTS)}")
    if sort == "random":
        # The same at each visit, so that one can go on.
        return np.random.default_rng(len(samples)).random(len(samples))
    values, sign = {
        "doubtful": (samples.concerns, -1.0),
        "suspicion": (samples.suspicion, -1.0),
        "hardest": (samples.rmd, -1.0),
        "easiest": (samples.rmd, 1.0),
        "unusual": (samples.agnostic, -1.0),
    }[sort]
    if values is None:
        raise absent(SUSPICION if sort == "suspicion" else AGNOSTIC, orders_of(samples))
    return sign * values


def _following(
    query: ImageQuery, rows: NDArray[np.int64] | None, keys: NDArray[np.float64]
) -> tuple[NDArray[np.int64] | None, NDArray[np.float64], int]:
    """Rows and keys after the cursor, and the number of rows before it was applied."""
    if not query.after:
        return rows, keys, len(keys)
    identity, last_key, last_row = read_cursor(CURSOR, query.after) or (b"", 0.0, 0)
    if not identity:
        raise BadQuery("after", "this is not a cursor; begin with the first page")
    if identity != _identity(query) or np.isnan(last_key):
        raise BadQuery(
            "after", "this cursor belongs to other conditions; begin with the first page"
        )
    numbers = np.arange(len(keys)) if rows is None else rows
    follows = (keys > last_key) | ((keys == last_key) & (numbers > last_row))
    return numbers[follows], keys[follows], len(keys)


def _identity(query: ImageQuery) -> bytes:
    return identity_of(sorted(query.conditions.items()))
