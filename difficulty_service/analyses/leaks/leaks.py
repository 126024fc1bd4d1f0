"""Copies of the samples of a training set in test sets: exact ones and near ones.

A sample of a test set that was trained on measures memory. Samples are exact copies where they were
read from the same bytes, or have the same features to the last bit; near copies are those whose
features have a large cosine. Both sets are read some thousand rows at a time, and only what is
found is kept.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from difficulty_service.analyses.leaks.near_search import (
    CPU,
    NearPairs,
    NearSearch,
    Search,
)
from difficulty_service.analyses.leaks.recall import ListsResult
from difficulty_service.base.errors import ConfigError
from difficulty_service.base.tables import save_table
from difficulty_service.base.wording import Noun, count_of, differences, list_names
from difficulty_service.scoring.exact_copies import blocks_at_once, exact_pairs
from difficulty_service.scoring.splits import (
    NO_LABEL,
    Block,
    Split,
    is_unknown,
    require_same_kind,
)

MOST_PAIRS = 1 << 21
"""Pairs of a test set that are listed: conflicts, and then those with the largest cosine."""

FEWEST_NEAR, MOST_CONFLICTING = 20, 0.05
"""Samples with near copies only from which, and share of them with another label beyond which, it
is said that these may be other images: of real copies few labels differ."""

EXACT_KIND, NEAR_KIND = "exact", "near"

HOW_READ = ("decoder", "corruption", "augment_runs", "augmentation")
"""What features of one kind may differ in, so that copies are a little less alike."""

Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]

FOUND = np.dtype(
    [("test", "i8"), ("train", "i8"), ("cosine", "f4"), ("exact", "?"), ("conflict", "?")]
)
"""A pair of samples by their positions."""

SCHEMA = pa.schema(
    [
        pa.field("test", pa.string(), nullable=False),
        pa.field("test_id", pa.string(), nullable=False),
        pa.field("test_label", pa.string()),
        pa.field("train_id", pa.string(), nullable=False),
        pa.field("train_label", pa.string()),
        pa.field("similarity", pa.float32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("conflict", pa.bool_(), nullable=False),
    ]
)
"""Columns of a table of pairs."""


@dataclass(frozen=True)
class SetLeaks:
    """What a test set has in common with the training set.

    Attributes:
        name: What the user calls the test set.
        noun: What a sample is in a word.
        num_samples: Number of its samples.
        copies: Number of its samples with a copy in the training set.
        exact: Number of those with an exact copy.
        conflicting: Number of those with a copy that has another label.
        train_copies: Number of samples of the training set that are copied here.
        num_pairs: Number of pairs of a sample and its copy.
        pairs: These pairs, with the columns of SCHEMA; conflicts first, then by their similarity.
            At most MOST_PAIRS.
        lists: What inverted lists find of the near copies; None where all samples were compared
            with all.
        marks: Marks that drop the samples with a copy from the test set.
    """

    name: str
    noun: Noun
    num_samples: int
    copies: int
    exact: int
    conflicting: int
    train_copies: int
    num_pairs: int
    lists: ListsResult | None
    pairs: pa.Table = field(repr=False)
    marks: pa.Table = field(repr=False)

    @property
    def share(self) -> float:
        """Share of its samples with a copy in the training set."""
        return self.copies / max(1, self.num_samples)


@dataclass(frozen=True)
class LeakReport:
    """Copies of the samples of a training set in test sets.

    Attributes:
        train: What the user calls the training set.
        num_train: Number of its samples.
        near_duplicates: Smallest cosine of near copies; None where only exact ones were looked for.
        tests: What each test set has in common with it.
        train_marks: Marks that drop every sample from the training set that a test set has too.
        warnings: What to know of all that, one sentence each.
    """

    train: str
    num_train: int
    near_duplicates: float | None
    tests: Sequence[SetLeaks]
    train_marks: pa.Table = field(repr=False)
    warnings: tuple[str, ...]

    @property
    def pairs(self) -> pa.Table:
        """The pairs of all test sets."""
        return pa.concat_tables([test.pairs for test in self.tests])

    def save(self, path: Path) -> None:
        """Writes the pairs as .parquet, .csv or .jsonl; the file appears whole or not at all."""
        save_table(path, self.pairs, SCHEMA)


def ignore(_compared: int) -> None:
    """The callback that does nothing."""


def find_leaks(
    train: Split,
    tests: Sequence[Split],
    near_duplicates: float | None,
    on_compared: Callable[[int], None] = ignore,
    search: Search = "auto",
    device: torch.device = CPU,
) -> LeakReport:
    """Looks for copies of the samples of test sets in a training set.

    Args:
        train: The training set.
        tests: Test sets with features of the same kind.
        near_duplicates: Smallest cosine of near copies, in (0, 1]. None to look for exact copies
            only, at once.
        on_compared: Called with the number of pairs of samples that were compared since the last
            call, or that inverted lists ruled out; whatever it raises ends the search.
        search: How near copies are looked for: `exact` compares all samples with all, `lists` those
            in the same inverted lists, and `auto` does that where there are very many. Exact copies
            are always complete.
        device: Where all samples are compared with all.

    Raises:
        ConfigError: The search is named where there are no near copies to look for.
        FeatureStoreError: Features are of another network or preparation, or damaged.
        StatisticsError: A feature is not finite.
        MissingPackage: faiss is not installed, and near copies are looked for.
    """
    if near_duplicates is None and search != "auto":
        raise ConfigError(
            f"{search} searches near copies, but only exact ones are wanted",
            "name a cosine, or leave it out",
            parameter="search",
        )
    for test in tests:
        require_same_kind(train, test)
    found = [_Found(train, test) for test in tests]
    for each in found:
        each.search(NearSearch(train, each.test, near_duplicates, search, device), on_compared)
    in_train = np.logical_or.reduce([each.in_train for each in found])
    return LeakReport(
        train=train.name,
        num_train=train.num_samples,
        near_duplicates=near_duplicates,
        tests=[each.result() for each in found],
        train_marks=train.marks_to_drop(np.flatnonzero(in_train)),
        warnings=tuple(
            dict.fromkeys(
                [
                    *train.warnings(),
                    *(warning for test in tests for warning in test.warnings()),
                    *(warning for test in tests for warning in _warnings(train, test)),
                    *(warning for each in found for warning in each.warnings()),
                ]
            )
        ),
    )


class _Found:
    """What is found of one test set, while both sets are read."""

    def __init__(self, train: Split, test: Split) -> None:
        self.train, self.test = train, test
        self._train_classes, self._test_classes = _class_places(train, test)
        size = len(test.labels)
        self.copies, self.exact, self.conflicting = (np.zeros(size, bool) for _ in range(3))
        self.in_train: Flags = np.zeros(len(train.labels), bool)
        self.num_pairs = 0
        self._pairs, self._num_kept = [np.empty(0, FOUND)], 0
        self.lists: ListsResult | None = None

    def search(self, near: NearSearch, on_compared: Callable[[int], None]) -> None:
        """Compares all samples of both sets."""
        for held in blocks_at_once(self.test):
            find = near.among(held)
            for references in self.train.blocks():
                for queries, pairs in zip(held, find(references), strict=True):
                    self._add(compare_blocks(queries, references, pairs))
                on_compared(len(references) * sum(map(len, held)))
        self.lists = near.recall

    def _add(self, pairs: NDArray[np.void]) -> None:
        if not len(pairs):
            return
        test, train = pairs["test"], pairs["train"]
        labels = self._test_classes[self.test.labels[test]]
        others = self._train_classes[self.train.labels[train]]
        pairs["conflict"] = (labels != others) & (labels >= 0) & (others >= 0)
        self.copies[test] = self.in_train[train] = True
        self.exact[test[pairs["exact"]]] = True
        self.conflicting[test[pairs["conflict"]]] = True
        self.num_pairs += len(pairs)
        self._pairs.append(pairs)
        self._num_kept += len(pairs)
        if self._num_kept > 2 * MOST_PAIRS:
            self._pairs = [self._first_pairs()]
            self._num_kept = len(self._pairs[0])

    def _first_pairs(self) -> NDArray[np.void]:
        """The pairs in their order, as many as are listed."""
        pairs = np.concatenate(self._pairs)
        order = np.lexsort((pairs["train"], pairs["test"], -pairs["cosine"], ~pairs["conflict"]))
        return pairs[order[:MOST_PAIRS]]

    def result(self) -> SetLeaks:
        """What was found."""
        pairs = self._first_pairs()
        return SetLeaks(
            name=self.test.name,
            noun=self.test.noun,
            num_samples=self.test.num_samples,
            copies=int(self.copies.sum()),
            exact=int(self.exact.sum()),
            conflicting=int(self.conflicting.sum()),
            train_copies=int(self.in_train.sum()),
            num_pairs=self.num_pairs,
            lists=self.lists,
            pairs=self._table(pairs),
            marks=self.test.marks_to_drop(np.flatnonzero(self.copies)),
        )

    def _table(self, pairs: NDArray[np.void]) -> pa.Table:
        columns: dict[str, object] = {"test": pa.repeat(self.test.name, len(pairs))}
        for side, split in (("test", self.test), ("train", self.train)):
            positions, places = np.unique(pairs[side], return_inverse=True)
            samples = split.samples_at(positions).take(pa.array(places, pa.int64()))
            columns[f"{side}_id"] = samples["sample_id"]
            columns[f"{side}_label"] = samples["label"]
        columns["similarity"] = pairs["cosine"].clip(max=1)
        columns["kind"] = np.where(pairs["exact"], EXACT_KIND, NEAR_KIND)
        columns["conflict"] = pairs["conflict"]
        return pa.table({name: columns[name] for name in SCHEMA.names}).cast(SCHEMA)

    def warnings(self) -> Iterator[str]:
        """What to know of the pairs."""
        if self.lists is not None:
            yield recall_warning(self.test, self.lists)
        if self.num_pairs > MOST_PAIRS:
            yield (
                f"{self.num_pairs:,} pairs of {self.test.name} are counted, of which the first "
                f"{MOST_PAIRS:,} are listed; a larger cosine finds fewer"
            )
        near = self.copies & ~self.exact
        number, differ = int(near.sum()), int((near & self.conflicting).sum())
        if number >= FEWEST_NEAR and differ > MOST_CONFLICTING * number:
            yield (
                f"{differ / number:.0%} of the {number:,} {self.test.noun}s of {self.test.name} "
                f"with near copies only have one with another label; unless that many labels are "
                f"wrong, some are different {self.test.noun}s that look alike: try a larger cosine"
            )


def recall_warning(test: Split, lists: ListsResult) -> str:
    """What inverted lists miss of the near copies in a test set."""
    checked = f"{count_of(lists.samples, test.noun)} of {test.name}"
    if lists.share is None:
        found = f"{checked} that were compared with all have no near copy, which tells nothing of"
        return (
            f"near copies in {test.name} were looked for in inverted lists; {found} what is missed"
        )
    return (
        f"near copies in {test.name} were looked for in inverted lists, which found "
        f"{lists.share:.1%} of {count_of(lists.pairs, 'pair')} with {checked} "
        "that were compared with all"
    )


def compare_blocks(queries: Block, references: Block, near: NearPairs) -> NDArray[np.void]:
    """The pairs of some samples of a test set and some of a training set; `conflict` is not set.

    Args:
        near: The near copies among them.
    """
    exact = exact_pairs(queries, references)
    rows, columns, cosines = near
    near_codes = rows * len(references) + columns
    others = np.setdiff1d(exact, near_codes)
    rows, columns = np.divmod(others, len(references))
    among = (queries.features[rows].double() * references.features[columns].double()).sum(dim=1)
    codes = np.concatenate([near_codes, others])
    pairs = np.empty(len(codes), FOUND)
    rows, columns = np.divmod(codes, len(references))
    pairs["test"], pairs["train"] = queries.positions[rows], references.positions[columns]
    pairs["cosine"] = np.concatenate([cosines, among.float().numpy()])
    pairs["exact"] = np.isin(codes, exact)
    return pairs


def _class_places(train: Split, test: Split) -> tuple[Rows, Rows]:
    """Place of each class of each set among the names of both.

    NO_LABEL is the last place of each, and stays what it is.
    """
    names = dict.fromkeys([*train.names, *test.names])
    places = {name: place for place, name in enumerate(names)}
    one, other = (
        np.array([*(places[name] for name in split.names), NO_LABEL]) for split in (train, test)
    )
    return one, other


def _warnings(train: Split, test: Split) -> Iterator[str]:
    """What to know of two sets before what is found is believed."""
    one, other = train.source.description, test.source.description
    names = (f"in {train.name}", f"in {test.name}")
    if (one.backbone is None) != (other.backbone is None):
        unknown = train.name if one.backbone is None else test.name
        yield (f"the backbone of {unknown} is unknown; if the backbones differ, copies are missed")
    yield from one.precision_warnings(other, test.name)
    values = [{name: getattr(each, name) for name in HOW_READ} for each in (one, other)]
    if not is_unknown(one, other) and (different := differences(*values, names=names)):
        yield f"the samples were read differently ({'; '.join(different)}), so copies may be missed"
    if train.has_labels and test.has_labels and set(train.names).isdisjoint(test.names):
        yield (
            f"{test.name} ({list_names(test.names)}) and {train.name} "
            f"({list_names(train.names)}) share no class name, so the labels of all copies differ"
        )
    if one.dataset and (one.dataset, one.fingerprint) == (other.dataset, other.fingerprint):
        yield f"{train.name} and {test.name} hold the same samples, so each is a copy of itself"
