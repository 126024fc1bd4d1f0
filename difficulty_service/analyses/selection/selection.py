"""Samples to label next or to keep: chosen from a pool by strategies, mixed and class by class."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import DatasetError, ScoreFileError, Setting
from difficulty_service.base.plugins import function_of
from difficulty_service.base.tables import (
    UNREADABLE,
    read_csv,
    read_json_lines,
    read_parquet,
    save_table,
)
from difficulty_service.base.wording import Noun, count_of, is_or_are, list_names
from difficulty_service.marks.record import ID_COLUMN
from difficulty_service.scorers.pool import Pool, Positions, ignore
from difficulty_service.scorers.strategies import Strategy
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.measures import scores_of
from difficulty_service.scoring.exact_copies import have_exact_copy
from difficulty_service.scoring.splits import LEFT_OUT, NO_LABEL, Split
from difficulty_service.settings.option_types import LARGEST_SEED
from difficulty_service.settings.options import SelectOptions

SCHEMA = pa.schema(
    [
        pa.field("rank", pa.int64(), nullable=False),
        pa.field(ID_COLUMN, pa.string(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("strategy", pa.string(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("batch", pa.int64()),
    ]
)
"""Columns of a table of chosen samples; `score` and `batch` only where there are any."""


@dataclass(frozen=True)
class Known:
    """What is known of a pool besides its features.

    Attributes:
        scores: Columns `sample_id` and `score`, larger is harder; None where no strategy reads it.
        labelled: Samples that have labels already, with features of the same kind; None for none.
        chosen: Ids of samples of the pool that are chosen already.
    """

    scores: pa.Table | None = None
    labelled: Split | None = None
    chosen: Sequence[str] = ()


@dataclass(frozen=True)
class Selection:
    """Chosen samples.

    Attributes:
        name: What the user calls the pool.
        noun: What a sample is in a word.
        num_samples: Number of samples of the pool.
        num_excluded: Number of those that have a label already, or were chosen before.
        table: The chosen samples, in the order of their choice, with the columns of SCHEMA.
        other_marks: Marks that drop every sample that is neither chosen nor was chosen before.
        classes: Number of chosen samples of each class; empty without labels.
        warnings: What to know of the choice, one sentence each.
    """

    name: str
    noun: Noun
    num_samples: int
    num_excluded: int
    table: pa.Table = field(repr=False)
    other_marks: pa.Table = field(repr=False)
    classes: Mapping[str, int]
    warnings: tuple[str, ...]

    @property
    def sample_ids(self) -> list[str]:
        """Ids of the chosen samples, in the order of their choice."""
        ids: list[str] = self.table[ID_COLUMN].to_pylist()
        return ids

    @property
    def strategies(self) -> Mapping[str, int]:
        """Number of samples that each strategy chose."""
        return Counter(self.table["strategy"].to_pylist())

    def save(self, path: Path) -> None:
        """Writes the table as .parquet, .csv or .jsonl; the file appears whole or not at all."""
        save_table(path, self.table)


def select_samples(
    pool: Split,
    request: SelectOptions,
    known: Known | None = None,
    on_compared: Callable[[int], None] = ignore,
) -> Selection:
    """Chooses samples of a pool.

    Args:
        on_compared: Called with the number of pairs of samples that `diverse` compared since the
            last call; whatever it raises ends the choice.

    Raises:
        DatasetError: There are fewer samples to choose from than are asked for.
        ScoreFileError: The scores are of none of the samples, or of too few.
        FeatureStoreError: Features of labelled samples are of another network, or damaged.
        StatisticsError: A feature is not finite.
        MissingPackage: faiss is not installed, and `typical` chooses.
    """
    return _Choice(pool, request, known or Known(), on_compared).selection()


class _Choice:
    """The samples of a pool that count, by their positions among those."""

    def __init__(
        self,
        pool: Split,
        request: SelectOptions,
        known: Known,
        on_compared: Callable[[int], None],
    ) -> None:
        self.pool, self.request, self.known, self.on_compared = pool, request, known, on_compared
        self.rows = np.flatnonzero(pool.labels != LEFT_OUT)
        self.labels = pool.labels[self.rows]
        self.ids = pool.sample_ids.take(pa.array(self.rows))
        self.before = _rows_of(known.chosen, self.ids, pool)
        self.copied = self._copied()
        self.free = ~(self.before | self.copied)
        self.scores = self._scores()

    def _copied(self) -> NDArray[np.bool_]:
        """Whether each sample is an exact copy of a labelled one."""
        if self.known.labelled is None:
            return np.zeros(len(self.rows), np.bool_)
        return have_exact_copy(self.pool, self.known.labelled)[self.rows]

    def _scores(self) -> NDArray[np.float64] | None:
        measure = self.known.scores
        return None if measure is None else scores_of(self.ids, measure, self.pool.name)

    def selection(self) -> Selection:
        """What is chosen."""
        count, free = self.request.count, int(self.free.sum())
        if count > free:
            excluded = len(self.rows) - free
            without = f", without {excluded:,} that have labels or were chosen" if excluded else ""
            raise DatasetError(
                f"{count_of(count, self.pool.noun)} cannot be chosen of {free:,} in "
                f"{self.pool.name}{without}",
                "ask for fewer",
                parameter="count",
            )
        features = covered = None
        if any(each.reads == "features" for each in self.request.shares):
            features = self.pool.vectors(unit=True)
            if self.known.labelled is not None:
                covered = self.known.labelled.vectors(unit=True)
        chosen, by = self._by_class(features, covered)
        return self._result(chosen, by)

    def _by_class(
        self, features: Tensor | None, covered: Tensor | None
    ) -> tuple[Positions, list[str]]:
        """Positions in their order, with the strategy of each; classes take turns."""
        turns = turns_of(self.request.shares, self.request.count)
        if not self.request.balanced:
            everyone = np.arange(len(self.rows))
            return self._mixed(everyone, Counter(turns), features, covered, self.request.seed)
        if self.labels.min() == NO_LABEL:
            raise DatasetError(
                f"{self.pool.name} has no labels to balance",
                "score it with ",
                Setting("clusters", "auto"),
                ", and name the score file",
                parameter="balanced",
            )
        sizes = np.bincount(self.labels[self.free], minlength=len(self.pool.names))
        orders, names, start = [], [], 0
        for label, number in enumerate(fair_counts(sizes, self._before(), self.request.count)):
            if not number:
                continue
            of_class = np.flatnonzero(self.labels == label)
            own = None if features is None else features[torch.from_numpy(of_class)]
            seed = (self.request.seed + label) % (LARGEST_SEED + 1)
            counts = Counter(turns[start : start + number])
            order, by = self._mixed(of_class, counts, own, covered, seed)
            orders.append(order)
            names.append(by)
            start += number
        return _in_turn(orders, names)

    def _before(self) -> NDArray[np.int64]:
        """Samples of each class that are chosen or labelled already."""
        labels, names = self.labels[self.before], self.pool.names
        counts = np.bincount(labels, minlength=len(names))
        if (labelled := self.known.labelled) is not None and labelled.has_labels:
            places = {name: place for place, name in enumerate(names)}
            for label, number in zip(*np.unique(labelled.labels, return_counts=True), strict=True):
                if label >= 0 and labelled.names[label] in places:
                    counts[places[labelled.names[label]]] += number
        return counts

    def _mixed(
        self,
        rows: Positions,
        counts: Mapping[Strategy, int],
        features: Tensor | None,
        covered: Tensor | None,
        seed: int,
    ) -> tuple[Positions, list[str]]:
        """Of some samples, those that each strategy chooses; strategies take turns.

        Each chooses from what the ones before it left, and knows what they chose.
        """
        free = self.free[rows].copy()
        scores = None if self.scores is None else self.scores[rows]
        orders, names = [], []
        for strategy in self.request.shares:
            number = counts.get(strategy, 0)
            pool = Pool(free.copy(), features, scores, covered, seed, self.on_compared)
            order = function_of(strategy.choose)(pool, number) if number else rows[:0]
            if len(order) < number:
                raise ScoreFileError(
                    f"{strategy.name} cannot choose {count_of(number, self.pool.noun)}: only "
                    f"{len(order):,} of the others have a score",
                    "ask for fewer, or choose by another column",
                    parameter="by",
                )
            free[order] = False
            orders.append(rows[order])
            names.append([strategy.name] * number)
        return _in_turn(orders, names)

    def _result(self, chosen: Positions, by: Sequence[str]) -> Selection:
        labels = self.labels[chosen]
        known = labels != NO_LABEL
        texts = pa.array(self.pool.names, pa.string()).take(
            pa.array(np.where(known, labels, 0), pa.int64(), mask=~known)
        )
        columns: dict[str, object] = {
            "rank": np.arange(1, len(chosen) + 1),
            ID_COLUMN: self.ids.take(pa.array(chosen)),
            "label": texts,
            "strategy": pa.array(by, pa.string()),
        }
        if self.scores is not None:
            values = self.scores[chosen]
            columns["score"] = pa.array(values, mask=np.isnan(values))
        if self.request.batch_size is not None:
            columns["batch"] = np.arange(len(chosen)) // self.request.batch_size + 1
        fields = [each for each in SCHEMA if each.name in columns]
        others = self.free.copy()
        others[chosen] = False
        numbers = np.bincount(labels[known], minlength=len(self.pool.names))
        classes = dict(zip(self.pool.names, numbers.tolist(), strict=True)) if known.any() else {}
        return Selection(
            name=self.pool.name,
            noun=self.pool.noun,
            num_samples=len(self.rows),
            num_excluded=len(self.rows) - int(self.free.sum()),
            table=pa.table(columns).cast(pa.schema(fields)),
            other_marks=self.pool.marks_to_drop(self.rows[np.flatnonzero(others | self.copied)]),
            classes=classes,
            warnings=tuple(self._warnings(chosen)),
        )

    def _warnings(self, chosen: Positions) -> Iterator[str]:
        yield from self.pool.warnings()
        if self.known.labelled is not None:
            yield from self.known.labelled.warnings()
        if number := int(self.copied.sum()):
            yield (
                f"{count_of(number, self.pool.noun)} of {self.pool.name} {is_or_are(number)} "
                "left out as exact copies of labelled ones"
            )
        if self.scores is not None and (unknown := int(np.isnan(self.scores[self.free]).sum())):
            have = "has" if unknown == 1 else "have"
            yield f"{count_of(unknown, self.pool.noun)} of {self.pool.name} {have} no score"
        labels = self.labels[chosen]
        if self.request.balanced:
            counts = np.bincount(labels, minlength=len(self.pool.names))
            left = np.bincount(self.labels[self.free], minlength=len(self.pool.names)) == counts
            short = [self.pool.names[row] for row in np.flatnonzero(left & (counts < counts.max()))]
            if short:
                yield f"too few to balance, so all were chosen: {list_names(short)}"


def fair_counts(sizes: NDArray[np.int64], before: NDArray[np.int64], count: int) -> list[int]:
    """How many to choose of each class, so that the smallest become as large as possible.

    Args:
        sizes: Samples of each class that may be chosen, at least `count` together.
        before: Samples of each class that are chosen already.
    """
    counts = [0] * len(sizes)
    waiting = [(int(number), label) for label, number in enumerate(before)]
    heapq.heapify(waiting)
    for _ in range(count):
        while counts[waiting[0][1]] == sizes[waiting[0][1]]:
            heapq.heappop(waiting)
        number, label = waiting[0]
        counts[label] += 1
        heapq.heapreplace(waiting, (number + 1, label))
    return counts


def turns_of(shares: Mapping[Strategy, int], count: int) -> list[Strategy]:
    """The strategy of each choice, in proportion to the shares from the first choice on."""
    total = sum(shares.values())
    turns: list[Strategy] = []
    done = dict.fromkeys(shares, 0)
    for number in range(1, count + 1):
        behind = max(shares, key=lambda each: number * shares[each] - total * done[each])
        done[behind] += 1
        turns.append(behind)
    return turns


def _in_turn(
    orders: Sequence[Positions], names: Sequence[Sequence[str]]
) -> tuple[Positions, list[str]]:
    """Several orders as one, in which each is spread evenly; of equals, the earlier order first."""
    sizes = [len(order) for order in orders]
    places = np.concatenate([(np.arange(size) + 0.5) / max(1, size) for size in sizes])
    order = places.argsort(kind="stable")
    every = [name for each in names for name in each]
    return np.concatenate(orders)[order], [every[row] for row in order.tolist()]


def chosen_scores(selection: Selection, path: Path) -> ScoreFile:
    """What a score file says of the chosen samples, in the order of their choice."""
    scores = read_scores(path)
    ids = scores.table[ID_COLUMN].combine_chunks()
    rows = pc.index_in(selection.table[ID_COLUMN].combine_chunks(), value_set=ids)
    return ScoreFile(scores.table.take(rows), scores.provenance)


def read_ids(path: Path) -> list[str]:
    """The ids in the column `sample_id` of a table, such as one of chosen samples.

    Raises:
        DatasetError: It cannot be read, or has no such column.
    """
    schema = pa.schema([pa.field(ID_COLUMN, pa.string())])
    try:
        if path.suffix.lower() == ".csv":
            table = read_csv(path, schema)
        elif path.suffix.lower() == ".jsonl":
            table = read_json_lines(path, schema)
        else:
            table = read_parquet(path, [ID_COLUMN])
        ids: list[str] = table[ID_COLUMN].cast(pa.string()).drop_null().to_pylist()
    except UNREADABLE as error:
        raise DatasetError(
            f"{path} is no table with a column {ID_COLUMN}: {' '.join(str(error).split())}",
            "name a .parquet, .csv or .jsonl file with the ids of samples",
            parameter="chosen",
        ) from error
    return ids


def _rows_of(ids: Sequence[str], known: pa.StringArray, pool: Split) -> NDArray[np.bool_]:
    """Whether each sample is among those of some ids; an id of none of them is an error."""
    found = _among(known, ids)
    if int(found.sum()) < len(set(ids)):
        unknown = sorted(set(ids) - set(known.to_pylist()))
        raise DatasetError(
            f"{len(unknown):,} of {count_of(len(set(ids)), 'id')} {is_or_are(len(unknown))} of no "
            f"{pool.noun} of {pool.name}, such as {unknown[0]!r}",
            f"ids look like {known[:1].to_pylist()}",
            parameter="chosen",
        )
    return found


def _among(known: pa.StringArray, ids: Sequence[str]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.is_in(known, value_set=pa.array(ids, pa.string())).to_numpy(
        zero_copy_only=False
    )
    return found
