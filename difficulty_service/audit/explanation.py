"""What the hard samples of a class share that its easy samples do not, in words."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difficulty_service.audit.mean_differences import bootstrap_intervals, compare_means, holm
from difficulty_service.errors import AuditError
from difficulty_service.provenance import Provenance

HARD_SHARE, EASY_SHARE = 0.1, 0.5
"""Shares of a class that are its hard and its easy samples."""

MIN_HARD = 10
"""Number of hard samples below which a group is not examined."""

SIGNIFICANT = 0.05

FORMAT_VERSION = 1

Numbers = NDArray[np.float64]
Similarities = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Finding:
    """An attribute that hard samples have more, or less, than easy ones.

    Attributes:
        attribute: The phrase.
        difference: Mean similarity of the hard samples minus that of the easy ones; a difference
            of cosines.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
        effect: The difference in standard deviations of the similarity; above 0, hard samples
            are more like the phrase.
        p_value: Adjusted for the number of attributes and groups.
    """

    attribute: str
    difference: float
    low: float
    high: float
    effect: float
    p_value: float


@dataclass(frozen=True)
class GroupFindings:
    """The findings of one class, or of all classes together.

    Attributes:
        class_name: Name of the class; None for all classes, each compared within itself.
        num_hard: Number of hard samples.
        num_easy: Number of easy samples.
        findings: What is significant, the largest effect first; empty where nothing stands out.
    """

    class_name: str | None
    num_hard: int
    num_easy: int
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Explanation:
    """The findings of a dataset.

    Attributes:
        num_attributes: Number of attributes.
        num_tests: Number of tests that the p-values are adjusted for.
        groups: All classes together, then each class that was examined, by name.
        small_classes: Number of classes with too few samples to be examined on their own.
    """

    num_attributes: int
    num_tests: int
    groups: Sequence[GroupFindings]
    small_classes: int

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, and the shares that are hard and easy."""
        shares = {"hard_share": HARD_SHARE, "easy_share": EASY_SHARE, "significant": SIGNIFICANT}
        return {"format_version": FORMAT_VERSION, **shares, **asdict(self)}


@dataclass(frozen=True)
class _Group:
    """Similarities of the hard and the easy samples of a group. Shape (samples, attributes)."""

    class_name: str | None
    hard: Numbers
    easy: Numbers
    easy_means: int


def explanation_file(scores: Path) -> Path:
    """Where the explanation of a score file is, or will be."""
    return scores.with_suffix(".explained.json")


def scored_by(provenance: Provenance) -> dict[str, Any]:
    """The network whose features were scored: scores of another one have another explanation."""
    return {"backbone": provenance.backbone, "weights_sha256": provenance.weights_sha256}


def explain(
    similarities: Similarities,
    scores: Numbers,
    class_names: Sequence[str],
    attributes: Sequence[str],
) -> Explanation:
    """Finds the attributes by which hard samples differ from easy ones.

    In each class the mean similarity of the hardest tenth is compared with that of the easiest
    half. All classes together are compared after the mean of a class's easy samples is
    subtracted, so that an attribute of a hard class is not taken for one of hard samples. All tests
    are corrected together: where scores have nothing to do with the attributes, there is a finding
    in at most one dataset of twenty.

    Args:
        similarities: Of samples and attributes. Shape (samples, attributes).
        scores: Larger is harder. Shape (samples,).
        class_names: Class of each sample.
        attributes: The phrases.

    Raises:
        AuditError: There are too few samples.
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
