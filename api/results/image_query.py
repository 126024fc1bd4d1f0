"""Which images a page shows, and in which order."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Literal

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from api.http.parameters import identity_of, parse_decimal, read_cursor, write_cursor
from api.results.column_conditions import (
    ASCENDING,
    DESCENDING,
    ColumnConditions,
    by_parameter,
    column_masks,
    named_columns,
    nothing,
    search_texts,
    sort_keys,
)
from api.results.maps import MOST_ALIKE, Area
from api.results.score_pages import BadQuery, absent
from difficulty_service.bodies.marks import ListOrder
from difficulty_service.marks.mark_kinds import MARK_KINDS
from difficulty_service.reports.map import ImageMap
from difficulty_service.reports.sample_columns import SampleColumns
from difficulty_service.scores.samples import AGNOSTIC, ScoredSamples

BLOCK = 512
"""Number of keys of which only the smallest is looked at where the smallest of all are sought."""


def first_places(keys: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """Places of the smallest keys, ascending; equal keys keep their order."""
    candidates = np.flatnonzero(keys <= _bound(keys, number))
    if len(candidates) > number:
        values = keys[candidates]
        largest = np.partition(values, number - 1)[number - 1]
        smaller = np.flatnonzero(values < largest)
        equal = np.flatnonzero(values == largest)[: number - len(smaller)]
        candidates = candidates[np.concatenate((smaller, equal))]
    return candidates[np.lexsort((candidates, keys[candidates]))]


def _bound(keys: NDArray[np.float64], number: int) -> float:
    """A value that at least `number` keys do not exceed, if there are so many.

    Each block has a key that is no larger than its minimum. Looking for the smallest minima leaves
    few keys to sort, in a tenth of the time that a partition of all keys takes.
    """
    num_blocks = len(keys) // BLOCK
    if num_blocks < number:
        return float("inf")
    minima = keys[: num_blocks * BLOCK].reshape(num_blocks, BLOCK).min(1)
    return float(np.partition(minima, number - 1)[number - 1])


SORTS: Mapping[ListOrder, str] = {
    "doubtful": "Doubtful labels first",
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

ALIKE = "alike"
"""Order of a list of images like one of them, or closest to words, the most similar first."""

MARKS: Mapping[str, str] = {
    "": "marked or not",
    "none": "not marked",
    "any": "marked",
    **{mark: mark.value for mark in MARK_KINDS},
}
"""Values of the filter by marks, with their names for people."""

REVIEWED: Mapping[str, str] = {
    "disagree": "reviewers disagree, not decided finally",
    "tie": "reviewers are split",
    "final": "decided finally",
}
"""Further ones for who sees the marks of all reviewers."""

VERIFIED: Mapping[str, str] = {
    "": "not decided in an earlier round",
    "only": "decided in an earlier round",
    "all": "decided or not",
}
"""Values of the filter by marks that were applied before scoring, with their names for people."""

DOUBTFUL = "0"
"""Value of `ImageQuery.margin` that doubtful labels exceed."""

CURSOR = ">8sdq"  # conditions, sort key and row
PERCENT = 100.0
LONGEST_TEXT = 1000


@dataclass(frozen=True)
class ImageQuery:
    """The parameters of an address that lists images, of which an empty one is no condition."""

    label: str = ""  # name of the class of the images, or text in the names of several
    near: str = ""  # the same of the class that fits best
    pmin: str = ""  # lowest percentile of difficulty, from 0 to 100
    pmax: str = ""  # highest one
    margin: str = ""  # suspicion that they exceed, or label margin where the scores have none
    q: str = ""  # text in the sample id
    mark: str = ""  # one of MARKS or REVIEWED
    verified: str = ""  # one of VERIFIED
    area: str = ""  # of the map, as `Area.parse` reads it
    like: str = ""  # row of the image that they are like
    text: str = ""  # words that they are closest to, of those that fulfil the other conditions
    share: str = ""  # of several people, as `share_of` reads it
    sort: str = "doubtful"  # one of SORTS, ALIKE, or `asc.` or `desc.` and a column
    after: str = ""  # cursor of the page before
    columns: ColumnConditions = ()  # on columns beside the scores

    @property
    def conditions(self) -> dict[str, str | Sequence[str]]:
        """The parameters that differ from their defaults, without the cursor.

        Where none does it is the order, as an address without parameters is of doubtful labels.
        """
        given = asdict(replace(self, after="", columns=()))
        changed = {
            each.name: given[each.name] for each in fields(self) if given[each.name] != each.default
        }
        return changed | dict(by_parameter(self.columns)) or {"sort": self.sort}

    @property
    def order(self) -> ListOrder | Literal[""]:
        """The order of all samples that this list begins; empty where it leaves some out.

        Those that are marked already were looked at before, so that they may be left out.
        """
        narrowing = {*self.conditions} - {"sort", "share"}  # a share is a random choice
        if self.mark == "none":
            narrowing -= {"mark"}
        if self.sort == "doubtful" and self.is_of_doubtful:
            narrowing -= {"margin"}
        return next((order for order in SORTS if order == self.sort and not narrowing), "")

    @property
    def usual_sort(self) -> str:
        """The order of an address that names none."""
        return ALIKE if self.like or self.text else "doubtful"

    @property
    def is_of_all(self) -> bool:
        """Whether there is no condition, whatever the order."""
        return self.conditions.keys() <= {"sort"}

    @property
    def takes_long(self) -> bool:
        """Whether many samples are looked at for longer than a few milliseconds."""
        return self.mark in REVIEWED or any((self.columns, self.q, self.area, self.like, self.text))

    @property
    def shown_columns(self) -> Sequence[str]:
        """Names of the columns that the images are filtered or sorted by."""
        return named_columns(self.columns, self.sort)

    @property
    def is_of_doubtful(self) -> bool:
        """Whether only doubtful labels are listed."""
        return self.margin == DOUBTFUL


@dataclass(frozen=True)
class Beside:
    """What conditions are about besides the scores; only what a query needs has to be there.

    Attributes:
        marked: Rows with the mark of the query; with any, where it asks for those with none.
        drawn: The map; None where there is none.
        alike: Rows of the images like one, with itself first; None without usable features.
        closeness: Cosine of each image to the words of the query; NaN where it is not known.
        go_on: Called now and then by what takes long; it may raise an exception to end that.
    """

    marked: Collection[int] = ()
    drawn: ImageMap | None = None
    alike: Sequence[int] | None = None
    closeness: NDArray[np.float32] | None = None
    columns: SampleColumns = field(default_factory=dict)
    go_on: Callable[[], None] = nothing


NOTHING_BESIDE = Beside()


@dataclass(frozen=True)
class ImagePage:
    """One page of images."""

    rows: list[int]  # in the score file
    matching: NDArray[np.int64] | None  # as `matching_rows` gives them
    num_matching: int
    next: str  # cursor of the next page; empty at the end


def orders_of(samples: ScoredSamples) -> dict[ListOrder, str]:
    """The orders for which the scores have the column."""
    lacking = "unusual" if samples.agnostic is None else ""
    if not samples.compares_classes:  # whose usual order is that of unusual ones
        return {**SORTS_OF_ONE_CLASS}
    return {order: text for order, text in SORTS.items() if order != lacking}


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
    """The images around one in the order of a query.

    Attributes:
        place: Number of images before it.
        previous: Row of the one before it; None at the beginning.
        following: Rows of some after it, in their order.
    """

    place: int
    previous: int | None
    following: list[int]


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


def matching_rows(
    samples: ScoredSamples, query: ImageQuery, beside: Beside = NOTHING_BESIDE
) -> NDArray[np.int64] | None:
    """Rows of the images that fulfil the conditions, ascending; None for every image."""
    fulfilled: NDArray[np.bool_] | None = None
    for mask in _masks(samples, query, beside):  # of which only two are in memory at once
        fulfilled = mask if fulfilled is None else fulfilled & mask
    rows = None if fulfilled is None else np.flatnonzero(fulfilled)
    return _closest(samples, query, beside, rows) if query.text else rows


def _masks(
    samples: ScoredSamples, query: ImageQuery, beside: Beside
) -> Iterator[NDArray[np.bool_]]:
    """Which samples fulfil each of the conditions. Each of shape (samples,)."""
    yield from _score_masks(samples, query)
    yield from _mark_masks(samples, query, beside.marked)
    yield from column_masks(beside.columns, query.columns, beside.go_on)
    if query.q:
        text = query.q[:LONGEST_TEXT]
        yield search_texts(samples.ids, lambda part: pc.match_substring(part, text), beside.go_on)
    if query.area:
        area = Area.parse(query.area)
        if beside.drawn is None:
            raise BadQuery("area", "this job has no map")
        yield _mask(len(samples), area.rows(beside.drawn))
    if query.like:
        yield _mask(len(samples), _alike(samples, query, beside))
    if query.share:
        number, shares = share_of(query.share)
        yield samples.share_keys % np.uint64(shares) == np.uint64(number - 1)


def marks_of(samples: ScoredSamples) -> dict[str, str]:
    """Those of MARKS that some samples may have."""
    others = MARK_KINDS.keys() - samples.mark_kinds.keys()
    return {name: words for name, words in MARKS.items() if name not in others}


def _mark_masks(
    samples: ScoredSamples, query: ImageQuery, marked: Collection[int]
) -> list[NDArray[np.bool_]]:
    masks: list[NDArray[np.bool_]] = []
    if query.mark:
        if query.mark not in {*MARKS, *REVIEWED}:
            known = ", ".join(filter(None, (*MARKS, *REVIEWED)))
            raise BadQuery("mark", f"there is no mark {query.mark[:100]!r}; use {known}")
        mask = _mask(len(samples), np.fromiter(marked, np.int64))
        masks.append(~mask if query.mark == "none" else mask)
    if query.verified not in VERIFIED:
        known = ", ".join(filter(None, VERIFIED))
        raise BadQuery("verified", f"{query.verified[:100]!r} is unknown; use {known}, or nothing")
    if query.verified == "only":
        masks.append(np.zeros(len(samples), bool) if samples.verified is None else samples.verified)
    elif samples.verified is not None and not query.verified:
        masks.append(~samples.verified)
    return masks


def share_of(text: str) -> tuple[int, int]:
    """Number of a share, from 1, and of all shares: `2of3` is the second of three."""
    found = re.fullmatch(r"([1-9][0-9]?)of([1-9][0-9]?)", text)
    number, shares = map(int, found.groups()) if found else (1, 0)
    if number > shares:
        raise BadQuery("share", f"there is no share {text[:100]!r}; use 1of3, 2of3 or 3of3")
    return number, shares


def row_of(text: str, samples: ScoredSamples) -> int | None:
    """The row of an image that an address names; None where there is none."""
    return parse_decimal(text, len(samples) - 1) if len(samples) else None


def _alike(samples: ScoredSamples, query: ImageQuery, beside: Beside) -> NDArray[np.int64]:
    """Rows of the images like that of the query, the most similar first."""
    if row_of(query.like, samples) is None:
        raise BadQuery("like", f"there is no image {query.like[:100]!r}; name the row of one")
    if beside.alike is None:
        raise BadQuery(
            "like", "there are no features to compare images by", "see the page of the image"
        )
    return np.asarray(beside.alike, np.int64)


def _closest(
    samples: ScoredSamples, query: ImageQuery, beside: Beside, rows: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The rows that are closest to the words of the query, among some or all, ascending."""
    rows = np.arange(len(samples)) if rows is None else rows
    keys = alike_keys(samples, query, beside)[rows]
    rows, keys = rows[~np.isnan(keys)], keys[~np.isnan(keys)]
    return np.sort(rows[first_places(keys, MOST_ALIKE)])


def alike_keys(samples: ScoredSamples, query: ImageQuery, beside: Beside) -> NDArray[np.float64]:
    """A new array that sorts all rows by what the query compares them with; NaN where unknown."""
    if query.text:
        if query.like:
            raise BadQuery(
                "text",
                "images are listed as like one of them or as closest to words, not both",
                "leave out one of the two",
            )
        if beside.closeness is None:
            raise BadQuery("text", "there are no features to compare words with")
        return -beside.closeness.astype(np.float64)
    alike = _alike(samples, query, beside)
    keys = np.full(len(samples), np.nan)
    keys[alike] = np.arange(len(alike))
    return keys


def _mask(number: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    mask = np.zeros(number, bool)
    mask[rows[rows < number]] = True
    return mask


def _score_masks(samples: ScoredSamples, query: ImageQuery) -> list[NDArray[np.bool_]]:
    masks: list[NDArray[np.bool_]] = []
    if query.label:
        masks.append(np.isin(samples.labels, _class_indices(samples, "label", query.label)))
    if query.near:
        masks.append(np.isin(samples.nearest, _class_indices(samples, "near", query.near)))
    if (low := _number("pmin", query.pmin)) is not None and low > 0:
        masks.append(samples.percentiles >= low / PERCENT)
    if (high := _number("pmax", query.pmax)) is not None and high < PERCENT:
        masks.append(samples.percentiles <= high / PERCENT)
    if (margin := _number("margin", query.margin)) is not None:
        masks.append(samples.doubts > margin)
    return masks


def _class_indices(samples: ScoredSamples, field: str, text: str) -> list[int]:
    """The class of a name; without one, all classes that have the text in their names."""
    exact = [label for label, name in samples.names.items() if name == text]
    wanted = text.strip().lower()
    found = exact or [label for label, name in samples.names.items() if wanted in name.lower()]
    if not found:
        raise BadQuery(field, f"no class has {text[:100]!r} in its name")
    return found


def _number(field: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not np.isfinite(number):
        raise BadQuery(field, f"{text[:100]!r} is not a number")
    return number


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
        "hardest": (samples.rmd, -1.0),
        "easiest": (samples.rmd, 1.0),
        "unusual": (samples.agnostic, -1.0),
    }[sort]
    if values is None:
        raise absent(AGNOSTIC, orders_of(samples))
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
