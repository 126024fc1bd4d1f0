"""What the hard samples of a class share that its easy samples do not, in words.

Differences of means between two groups of samples: tests, corrections and intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from difficulty_service.base.errors import AuditError
from difficulty_service.scores.explanation import (
    EASY_SHARE,
    HARD_SHARE,
    MIN_HARD,
    SIGNIFICANT,
    Explanation,
    Finding,
    GroupFindings,
)

Numbers = NDArray[np.float64]

RESAMPLES = 1000


@dataclass(frozen=True)
class MeanDifferences:
    """Tests of the means of two groups, one for each column.

    Differences of the means, the same in pooled standard deviations, and two-sided p-values.
    """

    differences: Numbers
    effects: Numbers
    p_values: Numbers


def compare_means(first: Numbers, second: Numbers, second_means: int = 1) -> MeanDifferences:
    """Compares the means of two groups by Student's and by Welch's test.

    The p-value is the larger one of the two. Far in the tail, where corrected tests decide, Welch's
    test finds too much in a small group beside a large one, and Student's test takes a small group
    that varies more than the other for one with another mean.

    Shapes (samples, columns): at least two samples in the first group, and in the second more than
    `second_means`, which were already subtracted from its parts: its variance has as many degrees
    of freedom less.
    """
    sizes = len(first), len(second)
    freedoms = sizes[0] - 1, sizes[1] - second_means
    squares = first.var(axis=0) * sizes[0], second.var(axis=0) * sizes[1]
    shares = squares[0] / freedoms[0] / sizes[0], squares[1] / freedoms[1] / sizes[1]
    differences = first.mean(axis=0) - second.mean(axis=0)
    pooled = np.sqrt((squares[0] + squares[1]) / sum(freedoms))
    welch_error = np.sqrt(shares[0] + shares[1])
    student_error = pooled * np.sqrt(1 / sizes[0] + 1 / sizes[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = welch_error**4 / (shares[0] ** 2 / freedoms[0] + shares[1] ** 2 / freedoms[1])
        p_values = 2 * np.maximum(
            stdtr(degrees, -np.abs(differences) / welch_error),
            stdtr(sum(freedoms), -np.abs(differences) / student_error),
        )
        effects = differences / pooled
    varies = pooled > 0
    return MeanDifferences(
        differences, np.where(varies, effects, 0.0), np.where(varies, p_values, 1.0)
    )


def holm(p_values: Numbers) -> Numbers:
    """Adjusts p-values for their number by Holm's step-down procedure.

    Where all hypotheses are true, the smallest adjusted p-value is below 0.05 with a probability of
    at most 5 %, however the tests depend on each other (Holm 1979).
    """
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def bootstrap_intervals(first: Numbers, second: Numbers, seed: int = 0) -> tuple[Numbers, Numbers]:
    """95 % percentile intervals of differences of means, over samples drawn again in each group."""
    rng = np.random.default_rng(seed)
    differences = [
        _resampled_mean(first, rng) - _resampled_mean(second, rng) for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(differences, (0.025, 0.975), axis=0)
    return low, high


def _resampled_mean(rows: Numbers, rng: np.random.Generator) -> Numbers:
    counts = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
    mean: Numbers = counts @ rows / len(rows)
    return mean


Similarities = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class _Group:
    """Similarities of the hard and the easy samples of a group. Shape (samples, attributes)."""

    class_name: str | None
    hard: Numbers
    easy: Numbers
    easy_means: int


def explain(
    similarities: Similarities,
    scores: Numbers,
    class_names: Sequence[str],
    attributes: Sequence[str],
) -> Explanation:
    """Finds the attributes by which hard samples differ from easy ones.

    In each class the mean similarity of the hardest tenth is compared with that of the easiest
    half. All classes together are compared after the mean of a class's easy samples is subtracted,
    so that an attribute of a hard class is not taken for one of hard samples. All tests are
    corrected together: where scores have nothing to do with the attributes, there is a finding in
    at most one dataset of twenty. Similarities have the shape (samples, attributes); of scores,
    larger is harder.
    """
    classes, labels = np.unique(np.asarray(class_names), return_inverse=True)
    groups = [
        _split(str(name), similarities[labels == label], scores[labels == label])
        for label, name in enumerate(classes)
    ]
    groups = [group for group in groups if len(group.hard)]
    large = [group for group in groups if len(group.hard) >= MIN_HARD]
    examined = [_together(groups), *(large if len(classes) > 1 else [])] if groups else []
    if not examined or len(examined[0].hard) < MIN_HARD:
        raise AuditError(
            f"{len(scores):,} samples in {len(classes):,} classes are too few to compare the hard "
            "ones with the easy ones",
            f"it needs {MIN_HARD} in the hardest tenths of the classes, such as one class of "
            f"{round(MIN_HARD / HARD_SHARE)} samples",
        )
    tests = [compare_means(group.hard, group.easy, group.easy_means) for group in examined]
    p_values = holm(np.concatenate([test.p_values for test in tests]))
    findings = [
        _findings(group, test.effects, adjusted, attributes)
        for group, test, adjusted in zip(
            examined, tests, np.split(p_values, len(examined)), strict=True
        )
    ]
    return Explanation(len(attributes), len(p_values), findings, len(classes) - len(large))


def _split(name: str, similarities: Similarities, scores: Numbers) -> _Group:
    """The hardest tenth and the easiest half of a class."""
    order = np.argsort(scores, kind="stable")
    num_hard, num_easy = int(len(scores) * HARD_SHARE), int(len(scores) * EASY_SHARE)
    hard, easy = order[len(order) - num_hard :], order[:num_easy]
    exact = similarities.astype(np.float64)
    return _Group(name, exact[hard], exact[easy], 1)


def _together(groups: Sequence[_Group]) -> _Group:
    """All classes, each without the mean of its easy samples."""
    means = [group.easy.mean(axis=0) for group in groups]
    pairs = list(zip(groups, means, strict=True))
    return _Group(
        None,
        np.concatenate([group.hard - mean for group, mean in pairs]),
        np.concatenate([group.easy - mean for group, mean in pairs]),
        len(groups),
    )


def _findings(
    group: _Group, effects: Numbers, p_values: Numbers, attributes: Sequence[str]
) -> GroupFindings:
    significant = np.flatnonzero(p_values < SIGNIFICANT)
    if not len(significant):
        return GroupFindings(group.class_name, len(group.hard), len(group.easy), [])
    significant = significant[np.argsort(-np.abs(effects[significant]), kind="stable")]
    hard, easy = group.hard[:, significant], group.easy[:, significant]
    differences = hard.mean(axis=0) - easy.mean(axis=0)
    lows, highs = bootstrap_intervals(hard, easy)
    columns = (differences, lows, highs, effects[significant], p_values[significant])
    rows = zip(significant.tolist(), *(column.tolist() for column in columns), strict=True)
    findings = [Finding(attributes[index], *numbers) for index, *numbers in rows]
    return GroupFindings(group.class_name, len(group.hard), len(group.easy), findings)
