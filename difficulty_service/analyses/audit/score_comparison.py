"""Two score files of the same samples, as of two backbones: do they find the same samples hard?

A bootstrap interval of a rank correlation.

The hardest samples and the doubtful labels that two score files share.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import AuditError
from difficulty_service.scores.agreement import rank_agreement, ranks
from difficulty_service.scores.compared_values import match_ids
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import require_columns

MOST_RESAMPLES, FEWEST_RESAMPLES = 1000, 200
RESAMPLED_ROWS = 20_000_000
"""Rows drawn in all; beyond 100,000 samples the interval is narrow, and fewer resamples will do."""


def spearman_interval(
    first: NDArray[np.float64], second: NDArray[np.float64], seed: int = 0
) -> tuple[float, float]:
    """The 95 % percentile interval of Spearman's rank correlation over resampled samples.

    A resample is a count for each sample, so that its ranks need no new sort.
    """
    size = len(first)
    num_resamples = max(FEWEST_RESAMPLES, min(MOST_RESAMPLES, RESAMPLED_ROWS // size))
    rng = np.random.default_rng(seed)
    one, other = (np.unique(scores, return_inverse=True)[1] for scores in (first, second))
    correlations = [
        spearman_of_counts(one, other, np.bincount(rng.integers(size, size=size), minlength=size))
        for _ in range(num_resamples)
    ]
    # In a resample of few samples all scores may be equal.
    low, high = np.nanquantile(correlations, (0.025, 0.975))
    return float(low), float(high)


def spearman_of_counts(
    first: NDArray[np.int64], second: NDArray[np.int64], counts: NDArray[np.int64]
) -> float:
    """Spearman's rank correlation, with averaged ties, where each sample is repeated.

    NaN where all scores are equal.
    """
    one, other = _centred_ranks(first, counts), _centred_ranks(second, counts)
    weighted = counts * one
    spread = (weighted @ one) * ((counts * other) @ other)
    return float(weighted @ other / np.sqrt(spread)) if spread > 0 else float("nan")


def _centred_ranks(places: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean rank of each sample minus the mean of all ranks. Shape (samples,)."""
    sizes = np.bincount(places, weights=counts)
    ranks: NDArray[np.float64] = (sizes.cumsum() - (sizes - 1) / 2)[places]
    return ranks - (counts.sum() + 1) / 2


Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class SharedHardest:
    """How many of the hardest samples two files share.

    Attributes:
        by_chance: Expected number for two files that have nothing to do with each other.
    """

    share: float
    count: int
    shared: int
    by_chance: float


@dataclass(frozen=True)
class SharedDoubts:
    """How many samples look more like another class than their own in both files.

    Attributes:
        num_samples: Number of samples with a `label_margin` in both files.
        in_first: Number of them whose margin is above 0 in the first file.
        in_second: The same in the second file.
        shared: Number of samples whose margin is above 0 in both files.
        by_chance: Expected number for two files that have nothing to do with each other.
        same_class: Number of shared samples whose nearest class is the same in both files.
    """

    num_samples: int
    in_first: int
    in_second: int
    shared: int
    by_chance: float
    same_class: int


def shared_hardest(first: Numbers, second: Numbers, share: float) -> SharedHardest:
    """How many samples are among the hardest `share`, at least one, in both files.

    Of equal scores the later samples count as harder.
    """
    size = len(first)
    count = max(1, round(share * size))
    hardest = [np.argsort(scores, kind="stable")[size - count :] for scores in (first, second)]
    shared = len(np.intersect1d(hardest[0], hardest[1], assume_unique=True))
    return SharedHardest(share, count, shared, count * count / size)


def shared_doubts(first: pa.Table, second: pa.Table) -> SharedDoubts | None:
    """How many labels look doubtful in both files; None where a file has no margins."""
    margins = [numbers_of(table, "label_margin") for table in (first, second)]
    known = ~(np.isnan(margins[0]) | np.isnan(margins[1]))
    if not known.any():
        return None
    doubtful = [margin[known] > 0 for margin in margins]
    both = doubtful[0] & doubtful[1]
    nearest = [
        texts_of(table, "nearest_label_name").filter(pa.array(known)) for table in (first, second)
    ]
    same = pc.equal(*(each.filter(pa.array(both)) for each in nearest))
    return SharedDoubts(
        num_samples=int(known.sum()),
        in_first=int(doubtful[0].sum()),
        in_second=int(doubtful[1].sum()),
        shared=int(both.sum()),
        by_chance=float(doubtful[0].sum() * doubtful[1].sum() / known.sum()),
        same_class=pc.sum(same).as_py() or 0,
    )


def numbers_of(table: pa.Table, column: str) -> Numbers:
    """A column of numbers, NaN for null. Shape (samples,)."""
    numbers: Numbers = table[column].cast(pa.float64()).to_numpy()
    return numbers


def texts_of(table: pa.Table, column: str) -> pa.ChunkedArray:
    """A column as plain text."""
    return table[column].cast(pa.string())


HARDEST_SHARES = (0.01, 0.05, 0.1)
MIN_CLASS_SAMPLES = 10
"""Number of samples from which on a class has a rank correlation of its own."""

FORMAT_VERSION = 1


@dataclass(frozen=True)
class ClassAgreement:
    """The samples of one class in both files.

    Attributes:
        name: Name of the class in the first file.
        spearman: Spearman's rank correlation; None where the samples are too few or have no order.
        mean_first: Mean percentile in the first file, from 0 for the easiest to 1.
        mean_second: Mean percentile in the second file.
    """

    name: str
    num_samples: int
    spearman: float | None
    mean_first: float
    mean_second: float


@dataclass(frozen=True)
class Move:
    """A sample that is harder or easier in the second file.

    Attributes:
        class_name: Its class in the first file.
        first: Percentile in the first file, from 0 for the easiest to 1, among the samples of both.
        second: Percentile in the second file.
    """

    sample_id: str
    class_name: str
    first: float
    second: float


@dataclass(frozen=True)
class ScoreComparison:
    """The result of a comparison of two score files.

    Attributes:
        backbones: Backbone of each file; None where the file does not name it.
        only_first: Ids that are in the first file only.
        only_second: Ids that are in the second file only.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end of its 95 % bootstrap interval.
        hardest: Shared samples among the hardest 1, 5 and 10 %.
        tenths: Number of samples by their tenth of difficulty in the first file and, in each row,
            in the second; the easiest first.
        doubts: Shared doubtful labels; None where a file has no margins.
        classes: Every class, the one with the smallest rank correlation first.
        moves: Samples whose percentiles differ most, the largest difference first.
    """

    score_column: str
    backbones: tuple[str | None, str | None]
    num_compared: int
    num_without_score: int
    only_first: Sequence[str]
    only_second: Sequence[str]
    spearman: float
    low: float
    high: float
    hardest: Sequence[SharedHardest]
    tenths: Sequence[Sequence[int]]
    doubts: SharedDoubts | None
    classes: Sequence[ClassAgreement]
    moves: Sequence[Move]
    warnings: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {"format_version": FORMAT_VERSION, **asdict(self)}


def compare_scores(
    first: ScoreFile, second: ScoreFile, score_column: str = "rmd", num_moves: int = 20
) -> ScoreComparison:
    """Compares the scores of samples that are in both files.

    Raises:
        AuditError: A column is missing, an id occurs twice, no sample is in both files, or the
            samples in both are too few or have no order.
    """
    for name, file in (("the first file", first), ("the second file", second)):
        require_columns(columns_of(score_column), file.table.column_names, name, AuditError)
    rows = match_ids(first.table["sample_id"], second.table["sample_id"], "sample_id")
    one = first.table.filter(rows.is_valid())
    other = second.table.take(rows.drop_null())
    unmatched = pc.invert(pc.is_in(second.table["sample_id"], value_set=one["sample_id"]))
    scored = pa.array(
        ~(np.isnan(numbers_of(one, score_column)) | np.isnan(numbers_of(other, score_column)))
    )
    num_joined = len(one)
    one, other = one.filter(scored), other.filter(scored)
    scores = numbers_of(one, score_column), numbers_of(other, score_column)
    spearman = rank_agreement(*scores).spearman
    low, high = spearman_interval(*scores)
    percentiles = _percentiles(scores[0]), _percentiles(scores[1])
    return ScoreComparison(
        score_column=score_column,
        backbones=(first.provenance.backbone, second.provenance.backbone),
        num_compared=len(one),
        num_without_score=num_joined - len(one),
        only_first=first.table["sample_id"].filter(rows.is_null()).to_pylist(),
        only_second=second.table["sample_id"].filter(unmatched).to_pylist(),
        spearman=spearman,
        low=low,
        high=high,
        hardest=[shared_hardest(*scores, share) for share in HARDEST_SHARES],
        tenths=np.histogram2d(*percentiles, bins=10, range=((0, 1), (0, 1)))[0]
        .astype(int)
        .tolist(),
        doubts=shared_doubts(one, other),
        classes=_by_class(one, scores, percentiles),
        moves=_moves(one, *percentiles, num_moves),
        warnings=_warnings(first.provenance, second.provenance, one, other),
    )


def columns_of(score_column: str) -> list[str]:
    """The columns of a score file that a comparison reads."""
    columns = ("sample_id", "label_name", "nearest_label_name", "label_margin", score_column)
    return list(dict.fromkeys(columns))


def _by_class(
    one: pa.Table, scores: Sequence[Numbers], percentiles: Sequence[Numbers]
) -> list[ClassAgreement]:
    encoded = texts_of(one, "label_name").dictionary_encode().combine_chunks()
    labels = encoded.indices.to_numpy()
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.searchsorted(labels[order], np.arange(1, len(encoded.dictionary))))
    classes = [
        ClassAgreement(
            name=name,
            num_samples=len(rows),
            spearman=_spearman(scores[0][rows], scores[1][rows]),
            mean_first=float(percentiles[0][rows].mean()),
            mean_second=float(percentiles[1][rows].mean()),
        )
        for name, rows in zip(encoded.dictionary.to_pylist(), members, strict=True)
    ]
    return sorted(classes, key=lambda each: (each.spearman is None, each.spearman, each.name))


def _spearman(first: Numbers, second: Numbers) -> float | None:
    try:
        return rank_agreement(first, second).spearman if len(first) >= MIN_CLASS_SAMPLES else None
    except AuditError:  # The scores of this class have no order.
        return None


def _moves(one: pa.Table, first: Numbers, second: Numbers, count: int) -> list[Move]:
    rows = np.argsort(-np.abs(second - first), kind="stable")[:count]
    moved = one.select(["sample_id", "label_name"]).take(rows).to_pydict()
    return [
        Move(*values)
        for values in zip(*moved.values(), first[rows].tolist(), second[rows].tolist(), strict=True)
    ]


def _warnings(first: Provenance, second: Provenance, one: pa.Table, other: pa.Table) -> list[str]:
    warnings = []
    fingerprints = [first.fingerprint, second.fingerprint]
    if None in fingerprints:
        warnings.append(
            "a score file does not name its dataset; the samples are matched by their sample_id"
        )
    elif fingerprints[0] != fingerprints[1]:
        warnings.append(
            "the datasets of the two files differ in their samples, labels or sizes (their "
            "fingerprints differ); the samples are matched by their sample_id"
        )
    relabelled = pc.sum(pc.not_equal(*(texts_of(each, "label_name") for each in (one, other))))
    if number := relabelled.as_py():
        have = "sample has" if number == 1 else "samples have"
        warnings.append(
            f"{number:,} {have} another label in the second file; the difficulty depends on the "
            "label"
        )
    return warnings


def _percentiles(scores: Numbers) -> Numbers:
    """Percentiles from 0 for the easiest to 1 for the hardest. Shape (samples,)."""
    return (ranks(scores) - 1) / (len(scores) - 1)
