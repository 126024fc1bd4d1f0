"""The contents of the sections of the report, which the templates put into words and charts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from difficulty_service.review.cards import Card
from difficulty_service.review.charts import (
    Bar,
    Scale,
    densities,
    histogram,
    outline,
    scale_of,
    shade_of,
)
from difficulty_service.review.selection import (
    SHOWN_CLASSES,
    ClassFacts,
    ConfusedPair,
    Selection,
    count_confusions,
)
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import ScoredSamples

LISTED_CLASSES = 50
"""Number of classes in the table of classes."""

HISTOGRAM_BINS, CUT_BINS, OUTLINE_BINS = 80, 60, 64
CUTS = 200
"""Number of steps of the slider of what speaks against a label."""

OUTLINE_WIDTH, OUTLINE_HEIGHT = 400.0, 36.0


@dataclass(frozen=True)
class Summary:
    """What a reader should know first.

    Attributes:
        by_suspicion: Whether this is by their suspicion, and not by their margin.
        num_unusual: Number of the other samples that are unlike anything else; None where the
            score file does not tell.
    """

    num_samples: int
    num_compared: int
    num_doubtful: int
    by_suspicion: bool
    num_unusual: int | None
    hardest: ClassFacts | None
    easiest: ClassFacts | None
    confused: ConfusedPair | None
    median: float
    hardest_cut: float
    scale: Scale | None
    bars: Sequence[Bar]

    @property
    def num_typical(self) -> int:
        """Number of samples that are neither doubtful nor unusual."""
        return self.num_samples - self.num_doubtful - (self.num_unusual or 0)


@dataclass(frozen=True)
class Cuts:
    """The slider that hides the less doubtful samples.

    Attributes:
        values: Suspicion or margin at each step, from 0 up.
        bars: Histogram of the values above 0, with logarithmic heights.
    """

    values: Sequence[float]
    counts: Sequence[int]
    bars: Sequence[Bar]


@dataclass(frozen=True)
class ClassRow:
    """A class in the table of classes: its facts and the outline of its scores."""

    facts: ClassFacts
    outline: str


@dataclass(frozen=True)
class MatrixCell:
    """Number of samples of a label that look like another class, and its shade from 0 to 9."""

    label: int
    nearest: int
    count: int
    shade: int


def summarise(
    samples: ScoredSamples, ranked: Sequence[ClassFacts], selection: Selection
) -> Summary:
    """The numbers of the first section."""
    several = len(ranked) > 1
    scale = scale_of(samples.rmd)
    known = samples.rmd[~np.isnan(samples.rmd)]
    return Summary(
        num_samples=len(samples),
        num_compared=int((~np.isnan(samples.margins)).sum()),
        num_doubtful=selection.num_doubtful,
        by_suspicion=samples.suspicion is not None,
        num_unusual=None if samples.agnostic is None else int(samples.is_unusual.sum()),
        hardest=ranked[0] if several else None,
        easiest=ranked[-1] if several else None,
        confused=selection.pairs[0] if selection.pairs else None,
        median=float(np.median(known)) if len(known) else float("nan"),
        hardest_cut=samples.hardest_cut,
        scale=scale,
        bars=[] if scale is None else histogram(samples.rmd, scale, HISTOGRAM_BINS),
    )


def cuts_of(samples: ScoredSamples) -> Cuts:
    """The steps of the slider, up to the most doubtful sample."""
    doubts = np.sort(samples.doubts[samples.is_doubtful])
    if not len(doubts):
        return Cuts([0.0], [0], [])
    largest = float(doubts[-1])
    values = np.linspace(0, largest, CUTS + 1)
    # The last step still shows the most doubtful sample.
    counts = len(doubts) - np.searchsorted(doubts, values, side="left")
    bars = histogram(doubts, Scale(0, largest), CUT_BINS, logarithmic=True)
    return Cuts([round(value, 4) for value in values.tolist()], counts.tolist(), bars)


def class_rows(
    samples: ScoredSamples, ranked: Sequence[ClassFacts], scale: Scale | None
) -> Sequence[ClassRow]:
    """The classes of the table, the hardest first, with the outlines of their scores."""
    listed = ranked[:LISTED_CLASSES]
    if scale is None:
        return [ClassRow(facts, "") for facts in listed]
    shapes = densities([samples.rmd[facts.rows] for facts in listed], scale, OUTLINE_BINS)
    return [
        ClassRow(facts, outline(shape, OUTLINE_WIDTH, OUTLINE_HEIGHT))
        for facts, shape in zip(listed, shapes, strict=True)
    ]


def matrix_of(samples: ScoredSamples) -> Sequence[Sequence[MatrixCell]] | None:
    """Counts of labels and the classes that fit better; None where there are too many classes."""
    labels = np.unique(samples.labels).tolist()
    if len(labels) > SHOWN_CLASSES:
        return None
    confusions = count_confusions(samples)
    classes = sorted({*labels, *(pair[1] for pair in confusions)})
    if not 1 < len(classes) <= SHOWN_CLASSES or not confusions:
        return None
    sizes = Counter(samples.labels.tolist())
    shares = {pair: count / sizes[pair[0]] for pair, count in confusions.items()}
    largest = max(shares.values())
    shades = {pair: shade_of(share, largest) for pair, share in shares.items()}
    return [
        [
            MatrixCell(one, other, confusions[one, other], shades.get((one, other), 0))
            for other in classes
        ]
        for one in classes
    ]


def review_data(
    samples: ScoredSamples, cards: Sequence[Card], selection: Selection, key: str
) -> Mapping[str, Any]:
    """What the review needs besides the page: names, doubts and typical images by class."""
    labels = sorted(selection.typical)
    cuts = cuts_of(samples)
    return {
        "key": key,
        "total": len(samples),
        "doubt": "margin" if samples.suspicion is None else "suspicion",
        "names": {label: samples.name_of(label) for label in labels},
        "typical": {label: list(selection.typical[label]) for label in labels},
        "cuts": cuts.values,
        "counts": cuts.counts,
        "cards": [
            {
                "id": card.sample_id,
                "label": card.label,
                "nearest": card.nearest,
                "margin": _rounded(card.margin),
                "doubt": round(card.doubt, 4),
                "difficulty": _rounded(card.rmd),
                "percentile": _rounded(card.percentile),
            }
            for card in cards
        ],
    }


def _rounded(number: float) -> float | None:
    return None if np.isnan(number) else round(number, 4)


SHORTENED = 16
"""Digits of a hash that are shown."""

SMALLEST_TROUBLESOME = 1e8
"""Condition number above which rounding in float32 can reorder scores."""


def describe_provenance(provenance: Provenance) -> Sequence[tuple[str, str]]:
    """Name and value of each known fact about the origin of scores."""
    noun, predictions, dim = provenance.noun, provenance.predictions, provenance.feature_dim
    scaled = ", scaled to unit length" if provenance.unit_length else ""
    reliable = None if provenance.reliable is None else "yes" if provenance.reliable else "no"
    facts = {
        "Dataset": provenance.dataset,
        "Backbone": provenance.backbone,
        "Predictions of": predictions and f"{predictions.recipe}, {predictions.run}",
        "Features": f"{dim:,} dimensions{scaled}" if dim else None,
        "Mirror images": "averaged with the images" if provenance.flip else None,
        "Corruption": provenance.corruption,
        f"{noun.capitalize()}s": _count(provenance.num_samples),
        f"{noun.capitalize()}s with a score": _count(provenance.num_scored),
        f"{noun.capitalize()}s that could not be read": _count(provenance.num_bad_images),
        "Fitted on": _fitted_on(provenance),
        "Shrinkage": provenance.shrinkage,
        "Augmented copies of each image": _count(provenance.augment_runs or None),
        "Condition within classes": _condition(provenance.within_condition),
        f"Condition of all {noun}s": _condition(provenance.agnostic_condition),
        f"Enough {noun}s to trust the scores": reliable,
        "SHA-256 of the weights": _hash(provenance.weights_sha256),
        "Fingerprint of the dataset": _hash(provenance.fingerprint),
        "Version": provenance.package_version,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _fitted_on(provenance: Provenance) -> str | None:
    fitted = provenance.fitted_on
    if fitted is None or not fitted.model_fields_set:
        return None
    if fitted.fingerprint == provenance.fingerprint:
        return None
    return f"{fitted.dataset}, {_count(fitted.num_samples)} {provenance.noun}s"


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _condition(number: float | None) -> str | None:
    if number is None:
        return None
    verdict = "unproblematic" if number < SMALLEST_TROUBLESOME else "close to singular"
    return f"{number:.1e}, {verdict}"


def _hash(digits: str | None) -> str | None:
    return f"{digits[:SHORTENED]}…" if digits else None
