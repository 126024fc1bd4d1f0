"""The conditions of a list of samples: one table, whose entries are the fields of `ImageQuery`.

An entry has a sentence about its value, the longest value, and the expression that finds the
samples. The parameters of the pages and of the API, the client's `ScoreFilter`, the table in
docs/explorer.md and the words of a page about an active condition are made from it. Conditions on
columns beside the scores are named after these columns; see `column_conditions.py`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from api.http.parameters import parse_decimal
from api.results.column_conditions import (
    ColumnConditions,
    by_parameter,
    column_masks,
    named_columns,
    nothing,
    search_texts,
)
from api.results.first_places import first_places
from api.results.maps import LONGEST_AREA, MOST_ALIKE, Area
from api.results.score_pages import BadQuery
from difficulty_service.bodies.marks import ListOrder
from difficulty_service.marks.mark_kinds import MARK_KINDS
from difficulty_service.reports.map import ImageMap
from difficulty_service.reports.sample_columns import SampleColumns
from difficulty_service.scores.samples import ScoredSamples

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

PERCENT = 100.0
LONGEST_TEXT = 1000


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

Expression: TypeAlias = Callable[[ScoredSamples, str, Beside], NDArray[np.bool_] | None]
"""Which samples fulfil a condition with some value, of shape (samples,); None for all of them.

Raises `BadQuery` where the value cannot be read.
"""


@dataclass(frozen=True)
class ListCondition:
    """An entry of the table of conditions.

    Attributes:
        sentence: What the value is.
        fulfilled: Finds the samples. It is not called for an empty value, unless `leaves_out`.
        longest: Number of characters of a value.
        listed: Value in the API, where an address has none.
        leaves_out: Whether an empty value is a condition, too.
        takes_long: Whether samples are looked at for longer than a few milliseconds.
        words: What the form says of a value that it has no entry for, of samples called a noun.
    """

    sentence: str
    fulfilled: Expression
    longest: int = LONGEST_TEXT
    listed: str = ""
    leaves_out: bool = False
    takes_long: bool = False
    words: Callable[[str, str], str] | None = None


def _has_label(samples: ScoredSamples, text: str, _: Beside) -> NDArray[np.bool_]:
    return np.isin(samples.labels, _class_indices(samples, "label", text))


def _looks_like(samples: ScoredSamples, text: str, _: Beside) -> NDArray[np.bool_]:
    return np.isin(samples.nearest, _class_indices(samples, "near", text))


def _is_hard(samples: ScoredSamples, text: str, _: Beside) -> NDArray[np.bool_] | None:
    low = _number("pmin", text)
    return None if low is None or low <= 0 else samples.percentiles >= low / PERCENT


def _is_easy(samples: ScoredSamples, text: str, _: Beside) -> NDArray[np.bool_] | None:
    high = _number("pmax", text)
    return None if high is None or high >= PERCENT else samples.percentiles <= high / PERCENT


def _is_doubted(samples: ScoredSamples, text: str, _: Beside) -> NDArray[np.bool_] | None:
    margin = _number("margin", text)
    return None if margin is None else samples.doubts > margin


def _is_suspected(samples: ScoredSamples, text: str, _: Beside) -> NDArray[np.bool_] | None:
    least = _number("p_wrong", text)
    return None if least is None else samples.p_wrong > least


def _has_in_id(samples: ScoredSamples, text: str, beside: Beside) -> NDArray[np.bool_]:
    return search_texts(samples.ids, lambda part: pc.match_substring(part, text), beside.go_on)


def _has_mark(samples: ScoredSamples, name: str, beside: Beside) -> NDArray[np.bool_]:
    if name not in {*MARKS, *REVIEWED}:
        known = ", ".join(filter(None, (*MARKS, *REVIEWED)))
        raise BadQuery("mark", f"there is no mark {name[:100]!r}; use {known}")
    mask = _mask(len(samples), np.fromiter(beside.marked, np.int64))
    return ~mask if name == "none" else mask


def _is_verified(samples: ScoredSamples, which: str, _: Beside) -> NDArray[np.bool_] | None:
    if which not in VERIFIED:
        known = ", ".join(filter(None, VERIFIED))
        raise BadQuery("verified", f"{which[:100]!r} is unknown; use {known}, or nothing")
    if which == "only":
        return np.zeros(len(samples), bool) if samples.verified is None else samples.verified
    return None if samples.verified is None or which == "all" else ~samples.verified


def _is_in_area(samples: ScoredSamples, text: str, beside: Beside) -> NDArray[np.bool_]:
    area = Area.parse(text)
    if beside.drawn is None:
        raise BadQuery("area", "this job has no map")
    return _mask(len(samples), area.rows(beside.drawn))


def _is_alike(samples: ScoredSamples, text: str, beside: Beside) -> NDArray[np.bool_]:
    return _mask(len(samples), _alike(samples, text, beside))


def _is_compared_with_words(_: ScoredSamples, _text: str, beside: Beside) -> NDArray[np.bool_]:
    """Those of which it is known; `matching_rows` takes the closest of them, after all others."""
    return ~np.isnan(_closeness(beside))


def _is_in_share(samples: ScoredSamples, text: str, _: Beside) -> NDArray[np.bool_]:
    found = re.fullmatch(r"([1-9][0-9]?)of([1-9][0-9]?)", text)
    number, shares = map(int, found.groups()) if found else (1, 0)
    if number > shares:
        raise BadQuery("share", f"there is no share {text[:100]!r}; use 1of3, 2of3 or 3of3")
    return samples.share_keys % np.uint64(shares) == np.uint64(number - 1)


def condition(sentence: str, fulfilled: Expression, **further: Any) -> Any:  # noqa: ANN401 - a field
    """The field of a condition, with the arguments of `ListCondition`."""
    return field(default="", metadata={"entry": ListCondition(sentence, fulfilled, **further)})


@dataclass(frozen=True)
class ImageQuery:
    """The parameters of an address that lists images, of which an empty one is no condition."""

    label: str = condition("Name of a class, or a part of several names", _has_label)
    near: str = condition("Class that fits best, or a part of its name", _looks_like)
    pmin: str = condition("Lowest percentile of difficulty, 0 to 100", _is_hard)
    pmax: str = condition("Highest percentile of difficulty", _is_easy)
    margin: str = condition("Suspicion (or margin, without it) to be exceeded", _is_doubted)
    p_wrong: str = condition("Probability of a wrong label to be exceeded, 0 to 1", _is_suspected)
    q: str = condition("Text in the sample id", _has_in_id, takes_long=True)
    mark: str = condition(f"none, any, {', '.join(MARK_KINDS)}, disagree, tie or final", _has_mark)
    verified: str = condition(
        "only or all: decided in an earlier round, or whatever",
        _is_verified,
        listed="all",
        leaves_out=True,
    )
    area: str = condition(
        "Corners on the map: x_y_x_y_x_y, as its page writes them",
        _is_in_area,
        longest=LONGEST_AREA,
        takes_long=True,
        words=lambda _value, _noun: "In the area of the map",
    )
    like: str = condition(
        "Row of a sample that they are like, with itself",
        _is_alike,
        takes_long=True,
        words=lambda _value, noun: f"Like one {noun}",
    )
    text: str = condition(
        f"Words, of which the {MOST_ALIKE} closest samples are listed",
        _is_compared_with_words,
        takes_long=True,
        words=lambda _value, _noun: "Shows, in words",
    )
    share: str = condition(
        "One of several shares by sample id: 1of3, 2of3 or 3of3",
        _is_in_share,
        words=lambda value, _noun: f"Share {value.replace('of', ' of ')}",
    )
    sort: str = "doubtful"  # a ListOrder, ALIKE, or `asc.` or `desc.` and a column
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
        if self.sort == "doubtful":
            narrowing -= {"margin"}
        if self.sort == "suspicion":
            narrowing -= {"p_wrong"}
        orders: tuple[ListOrder, ...] = get_args(ListOrder)
        return next((order for order in orders if order == self.sort and not narrowing), "")

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
        searched = any(entry.takes_long and value for _, entry, value in self.entries())
        return searched or bool(self.columns) or self.mark in REVIEWED

    @property
    def shown_columns(self) -> Sequence[str]:
        """Names of the columns that the images are filtered or sorted by."""
        return named_columns(self.columns, self.sort)

    @property
    def is_of_doubtful(self) -> bool:
        """Whether only doubtful labels are listed."""
        return self.margin == DOUBTFUL

    def entries(self) -> list[tuple[str, ListCondition, str]]:
        """Each name of the table with its entry and its value here."""
        return [(name, entry, getattr(self, name)) for name, entry in CONDITIONS.items()]

    def in_words(self, noun: str) -> dict[str, tuple[str, str]]:
        """Value and words of each condition that a form has no entry for."""
        return {
            name: (value, entry.words(value, noun))
            for name, entry, value in self.entries()
            if value and entry.words
        }


CONDITIONS: Mapping[str, ListCondition] = {
    each.name: each.metadata["entry"] for each in fields(ImageQuery) if each.metadata
}
"""The table: every condition of a list by its name in addresses."""


def matching_rows(
    samples: ScoredSamples, query: ImageQuery, beside: Beside = NOTHING_BESIDE
) -> NDArray[np.int64] | None:
    """Rows of the images that fulfil the conditions, ascending; None for every image."""
    masks = (
        entry.fulfilled(samples, value, beside)
        for _, entry, value in query.entries()
        if value or entry.leaves_out
    )
    fulfilled: NDArray[np.bool_] | None = None
    # Of which only two are in memory at once.
    for mask in chain(masks, column_masks(beside.columns, query.columns, beside.go_on)):
        if mask is not None:
            fulfilled = mask if fulfilled is None else fulfilled & mask
    rows = None if fulfilled is None else np.flatnonzero(fulfilled)
    if not query.text or rows is None:
        return rows
    return np.sort(rows[first_places(alike_keys(samples, query, beside)[rows], MOST_ALIKE)])


def marks_of(samples: ScoredSamples) -> dict[str, str]:
    """Those of MARKS that some samples may have."""
    others = MARK_KINDS.keys() - samples.mark_kinds.keys()
    return {name: words for name, words in MARKS.items() if name not in others}


def row_of(text: str, samples: ScoredSamples) -> int | None:
    """The row of an image that an address names; None where there is none."""
    return parse_decimal(text, len(samples) - 1) if len(samples) else None


def _alike(samples: ScoredSamples, text: str, beside: Beside) -> NDArray[np.int64]:
    """Rows of the images like one, the most similar first."""
    if row_of(text, samples) is None:
        raise BadQuery("like", f"there is no image {text[:100]!r}; name the row of one")
    if beside.alike is None:
        raise BadQuery(
            "like", "there are no features to compare images by", "see the page of the image"
        )
    return np.asarray(beside.alike, np.int64)


def alike_keys(samples: ScoredSamples, query: ImageQuery, beside: Beside) -> NDArray[np.float64]:
    """A new array that sorts all rows by what the query compares them with; NaN where unknown."""
    if query.text:
        if query.like:
            raise BadQuery(
                "text",
                "images are listed as like one of them or as closest to words, not both",
                "leave out one of the two",
            )
        return -_closeness(beside).astype(np.float64)
    alike = _alike(samples, query.like, beside)
    keys = np.full(len(samples), np.nan)
    keys[alike] = np.arange(len(alike))
    return keys


def _closeness(beside: Beside) -> NDArray[np.float32]:
    if beside.closeness is None:
        raise BadQuery("text", "there are no features to compare words with")
    return beside.closeness


def _mask(number: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    mask = np.zeros(number, bool)
    mask[rows[rows < number]] = True
    return mask


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
