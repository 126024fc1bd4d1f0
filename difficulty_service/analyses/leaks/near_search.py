"""How the near copies of the samples of a test set are looked for: in all, or by inverted lists.

What a search misses is measured while it runs: a random part of the test set is compared with all
samples of the training set, and the near copies that are found so are counted among those that
the lists find.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from difficulty_service.analyses.leaks.near_lists import NearLists, build_lists
from difficulty_service.analyses.leaks.recall import ListsResult
from difficulty_service.backbones.backbone import choose_device
from difficulty_service.base.devices import has_gpu
from difficulty_service.scorers.near_copies import near_pairs_between
from difficulty_service.scoring.splits import Block, Split

Search = Literal["auto", "exact", "lists"]

MOST_EXACT = 5_000_000_000
"""Pairs of samples up to which all are compared by default: two minutes of a core for 512
features."""

TIMES_ON_GPU = 1000
"""So many times as many pairs are compared on a GPU in about the time."""

CPU = torch.device("cpu")

CHECKED, CHECKED_SHARE = 1000, 0.05
"""Samples of a test set that are compared with all, and the largest share of it that they are."""

Rows = NDArray[np.int64]
Cosines = NDArray[np.float32]
NearPairs = tuple[Rows, Rows, Cosines]
"""Rows of a block of the test set, rows of one of the training set, and the cosines of both."""

Finder = Callable[[Block], Iterator[NearPairs]]
"""Takes some of the training set, and gives its near copies among each block that is held."""


def search_device(name: str) -> torch.device:
    """The device of this name; for `auto` an NVIDIA GPU if there is one, otherwise the CPU.

    Raises:
        BackboneError: There is no such device here.
    """
    if name == "auto":
        return torch.device("cuda") if has_gpu() else CPU
    return choose_device(name)


class NearSearch:
    """The search for the near copies of the samples of one test set.

    Args:
        threshold: Smallest cosine of near copies; None to find none.
        search: How they are looked for; `auto` is by lists where there are more than MOST_EXACT
            pairs of samples and that saves time.
        device: Where all samples are compared with all.
    """

    def __init__(
        self,
        train: Split,
        test: Split,
        threshold: float | None,
        search: Search,
        device: torch.device = CPU,
    ) -> None:
        self._threshold, self._search, self._device = threshold, search, device
        num_pairs = train.num_samples * test.num_samples
        most = MOST_EXACT if device == CPU else TIMES_ON_GPU * MOST_EXACT
        self._tries_lists = search == "lists" or (search == "auto" and num_pairs > most)
        self._checked_share = min(CHECKED_SHARE, CHECKED / max(1, test.num_samples))
        self._random = np.random.default_rng(0)
        self._lists: list[_Lists] = []

    @property
    def recall(self) -> ListsResult | None:
        """What the lists found so far; None where all samples were compared with all."""
        if not self._lists:
            return None
        return ListsResult(
            samples=sum(len(each.checked) for each in self._lists),
            pairs=sum(each.pairs for each in self._lists),
            found=sum(each.found for each in self._lists),
        )

    def among(self, held: Sequence[Block]) -> Finder:
        """What finds the near copies of some samples of the test set, which are held in memory."""
        threshold = self._threshold
        if threshold is None:
            return lambda _references: iter([_joined([])] * len(held))
        if self._tries_lists:
            lists = build_lists([block.features for block in held], threshold)
            if self._search == "lists" or lists.saves_time:
                size = sum(map(len, held))
                count = max(1, round(self._checked_share * size))
                rows = np.sort(self._random.choice(size, count, replace=False))
                self._lists.append(_Lists(held, lists, rows))
                return self._lists[-1].find
        queries = [block.features.to(self._device) for block in held]

        def compare(references: Block) -> Iterator[NearPairs]:
            others = references.features.to(self._device)
            for each in queries:
                yield _joined(near_pairs_between(each, others, threshold))

        return compare


class _Lists:
    """Some samples of the test set in lists, and what these find of what there is.

    Attributes:
        checked: Rows of the samples that are compared with all.
        pairs: Number of their near copies.
        found: Number of those that the lists found.
    """

    def __init__(self, held: Sequence[Block], lists: NearLists, checked: Rows) -> None:
        self._lists, self.checked = lists, checked
        self._starts = np.cumsum([0, *map(len, held)])
        self._features = torch.cat(
            [
                block.features[checked[(checked >= start) & (checked < start + len(block))] - start]
                for start, block in zip(self._starts, held, strict=False)
            ]
        )
        self.pairs = self.found = 0

    def find(self, references: Block) -> Iterator[NearPairs]:
        """The near copies of each block: those in the lists, and all of the checked samples."""
        rows, columns, cosines = self._lists.pairs(references.features)
        listed = rows * len(references) + columns
        threshold = self._lists.threshold
        among = near_pairs_between(self._features, references.features, threshold)
        checked, others, values = _joined(among)
        codes = self.checked[checked] * len(references) + others
        missed = ~np.isin(codes, listed)
        self.pairs += len(codes)
        self.found += len(codes) - int(missed.sum())
        everything = np.concatenate([listed, codes[missed]])
        order = np.argsort(everything, kind="stable")
        rows, columns = np.divmod(everything[order], len(references))
        cosines = np.concatenate([cosines, values[missed]])[order]
        ends = np.searchsorted(rows, self._starts)
        for first, start, stop in zip(self._starts, ends, ends[1:], strict=False):
            yield rows[start:stop] - first, columns[start:stop], cosines[start:stop]


def _joined(found: Iterable[NearPairs]) -> NearPairs:
    """Several arrays of pairs in one."""
    none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    rows, columns, cosines = zip(none, *found, strict=True)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(cosines)
