"""Labels that are made wrong on purpose, to see how many of them the label margin finds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from difficulty_service.base.errors import StatisticsError
from difficulty_service.base.tables import to_numpy
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.marked_features import ChangedFeatures
from difficulty_service.scoring.rows import match_classes, score_rows

Labels = NDArray[np.int64]
Numbers = NDArray[np.float64]
ChooseClasses = Callable[[Labels, np.random.Generator], Labels]
"""Chooses another class for each of some labels."""


@dataclass(frozen=True)
class FlippedMargins:
    """Label margins of a dataset, and of samples whose label was flipped before the fit.

    Attributes:
        at_random: Margins of labels that were flipped to any other class. Shape (flips,).
        confused: Margins of labels that were flipped to classes that samples of their class are
            near to, as often as that occurs. Shape (flips,).
    """

    sample_ids: Sequence[str]
    margins: Numbers
    at_random: Numbers
    confused: Numbers


@dataclass(frozen=True)
class _Compared:
    """Columns of the score file of a store."""

    sample_ids: list[str]
    labels: Labels
    nearest: Labels
    margins: Numbers


def flip_and_score(
    store: FeatureSource, fit: FitOptions, *, share: float = 0.02, repeats: int = 3, seed: int = 0
) -> FlippedMargins:
    """Scores a store as it is, and again several times, each with other labels flipped.

    The Gaussians are fitted anew each time, with the flipped labels, as they would be if these had
    been wrong from the start.
    """
    given = _compare(store, fit)
    counts = np.bincount(given.labels, minlength=len(store.class_names))
    if (counts > 1).sum() < 2:  # noqa: PLR2004
        raise StatisticsError("labels can be flipped only between two classes of several samples")
    uniform = np.tile(counts > 1, (len(counts), 1)).astype(float)
    choices = [_by_weights(uniform), _by_confusion(given, counts)]
    generator = np.random.default_rng(seed)
    num_flips = max(1, round(share * len(given.labels)))
    found: list[list[Numbers]] = [[], []]
    for _ in range(repeats):
        for choose, margins in zip(choices, found, strict=True):
            rows = generator.choice(len(given.labels), num_flips, replace=False)
            labels = given.labels.copy()
            labels[rows] = choose(labels[rows], generator)
            margins.append(
                _compare(ChangedFeatures(store, torch.from_numpy(labels)), fit).margins[rows]
            )
    at_random, confused = (np.concatenate(margins) for margins in found)
    known = ~np.isnan(given.margins)
    ids = [each for each, is_known in zip(given.sample_ids, known, strict=True) if is_known]
    return FlippedMargins(
        ids, given.margins[known], at_random[~np.isnan(at_random)], confused[~np.isnan(confused)]
    )


def _compare(store: FeatureSource, fit: FitOptions) -> _Compared:
    gaussians = fit_store(store, fit).gaussians
    classes = match_classes(store.class_names, store.class_names)
    batches = list(score_rows(store, gaussians, classes, (), left_out=True))
    return _Compared(
        sample_ids=[each for batch in batches for each in batch["sample_id"].to_pylist()],
        labels=_integers([to_numpy(batch["label"]) for batch in batches]),
        nearest=_integers([to_numpy(batch["nearest_label"]) for batch in batches]),
        margins=np.concatenate([to_numpy(batch["label_margin"]) for batch in batches]),
    )


def _by_confusion(given: _Compared, counts: Labels) -> ChooseClasses:
    weights = np.zeros((len(counts), len(counts)))
    np.add.at(weights, (given.labels, given.nearest), 1)
    np.fill_diagonal(weights, 0)
    alone = weights.sum(axis=1) == 0  # no sample of these classes is nearest to another
    weights[alone] = counts > 1
    return _by_weights(weights)


def _by_weights(weights: Numbers) -> ChooseClasses:
    """Chooses classes with probabilities in proportion to weights of shape (classes, classes)."""
    np.fill_diagonal(weights, 0)
    totals = np.cumsum(weights, axis=1)

    def choose(labels: Labels, generator: np.random.Generator) -> Labels:
        drawn = generator.random(len(labels)) * totals[labels, -1]
        return np.array(
            [
                np.searchsorted(totals[label], value, side="right")
                for label, value in zip(labels, drawn, strict=True)
            ],
            dtype=np.int64,
        )

    return choose


def _integers(columns: Sequence[NDArray[np.int32]]) -> Labels:
    return np.concatenate(columns).astype(np.int64)
