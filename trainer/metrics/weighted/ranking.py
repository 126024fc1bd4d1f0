"""Weighted detection of errors and of OOD samples, and weighted selective prediction."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.metrics.ood import OodDetection, detection_of_groups, ood_score
from trainer.metrics.predictions import as_array
from trainer.metrics.ranking import RankedGroups
from trainer.metrics.selective import (
    MisclassificationDetection,
    accuracies_of_kept,
    augrc_of_errors,
    aurc_of_errors,
    certainty_and_correct,
    detection_of_errors,
    e_aurc_of_errors,
)
from trainer.metrics.weighted.statistic import Counts, Statistic, Values

REJECTED_SHARES = (0.1, 0.2, 0.5)
"""Shares of the least certain samples after whose rejection the accuracy is reported."""

DETECTION_NAMES = tuple(MisclassificationDetection.__annotations__)


def names(by: str) -> tuple[str, ...]:
    """Names of the metrics by one of CERTAINTIES."""
    return (
        *(f"misclassification_{name}_{by}" for name in DETECTION_NAMES),
        f"aurc_{by}",
        f"e_aurc_{by}",
        f"augrc_{by}",
        *(f"accuracy_rejecting_{round(100 * share)}_percent_{by}" for share in REJECTED_SHARES),
    )


@dataclass(frozen=True)
class _Ranking:
    """Samples in descending order of a score.

    Attributes:
        order: Index of each sample. Shape (samples,).
        positive: 1 for a positive, otherwise 0. Shape (samples,).
        starts: First place of every group of equal scores. Shape (groups,).
    """

    order: NDArray[np.intp]
    positive: NDArray[np.float64]
    starts: NDArray[np.intp]

    def groups(self, counts: NDArray[np.float64]) -> RankedGroups:
        """The groups that any sample is in."""
        sizes = counts[self.order]
        hits = sizes * self.positive
        if len(self.starts) < len(sizes):
            sizes, hits = (np.add.reduceat(each, self.starts) for each in (sizes, hits))
        drawn = np.flatnonzero(sizes)
        return RankedGroups(hits[drawn], sizes[drawn])


def weighted_ranking(logits: Tensor, targets: Tensor, by: str) -> Statistic:
    """Prepares the metrics of `names(by)`; see `weighted_metrics`."""
    ranking = _rank(*certainty_and_correct(logits, targets, by))

    def statistic(counts: Counts) -> Values:
        values = np.array([_metrics(ranking.groups(row)) for row in counts])
        return dict(zip(names(by), values.T, strict=True))

    return statistic


def weighted_ood(id_logits: Tensor, ood_logits: Tensor, by: str) -> Statistic:
    """Prepares OOD detection, for counts of the ID samples followed by those of the OOD samples.

    Args:
        id_logits: Shape (samples, classes).
        ood_logits: Shape (other samples, classes).
        by: A key of OOD_SCORES.

    Raises:
        MetricError: `by` is unknown, or logits are invalid.
    """
    scores = torch.cat([ood_score(id_logits, by), ood_score(ood_logits, by)])
    ranking = _rank(scores, torch.arange(len(scores)) >= len(id_logits))

    def statistic(counts: Counts) -> Values:
        detections = [detection_of_groups(ranking.groups(row)) for row in counts]
        return {
            name: np.array([getattr(each, name) for each in detections])
            for name in OodDetection.__annotations__
        }

    return statistic


def _rank(scores: Tensor, positive: Tensor) -> _Ranking:
    values = as_array(scores)
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return _Ranking(order, as_array(positive)[order].astype(np.float64), starts)


def _metrics(groups: RankedGroups) -> list[float]:
    """The metrics in the order of `names`; detection is NaN without both kinds of samples."""
    errors = np.repeat(groups.misses / groups.sizes, groups.sizes.astype(np.intp))
    detection = [np.nan] * len(DETECTION_NAMES)
    if 0 < groups.hits.sum() < groups.sizes.sum():
        detection = list(asdict(detection_of_errors(groups)).values())
    return [
        *detection,
        aurc_of_errors(errors),
        e_aurc_of_errors(errors),
        augrc_of_errors(errors),
        *accuracies_of_kept(errors, np.asarray(REJECTED_SHARES)),
    ]
