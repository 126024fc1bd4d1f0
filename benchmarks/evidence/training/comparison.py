"""Runs of several seeds beside each other: means, and differences that are paired by the seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from benchmarks.evidence.results import Results
from benchmarks.evidence.training.cells import chosen_alpha, run_name
from benchmarks.evidence.training.methods import Method, Network

LEVEL = 0.95


@dataclass(frozen=True)
class Measure:
    """A number of the tables.

    Attributes:
        name: Its name.
        stage: Stage of the metric: as trained, or after temperature scaling.
        metric: Name of the metric in a record.
        larger_is_better: Whether larger values are better.
        scale: Factor of what the tables show.
        digits: Digits after the point that the tables show.
    """

    name: str
    stage: str
    metric: str
    larger_is_better: bool
    scale: float
    digits: int


MEASURES = (
    Measure("accuracy (%)", "raw", "accuracy", larger_is_better=True, scale=100, digits=1),
    Measure(
        "AUROC of errors",
        "raw",
        "misclassification_auroc_msp",
        larger_is_better=True,
        scale=1,
        digits=3,
    ),
    Measure("adaptive ECE (%)", "raw", "adaptive_ece", larger_is_better=False, scale=100, digits=1),
    Measure("NLL", "raw", "nll", larger_is_better=False, scale=1, digits=3),
    Measure(
        "adaptive ECE scaled (%)",
        "temperature_nll",
        "adaptive_ece",
        larger_is_better=False,
        scale=100,
        digits=1,
    ),
    Measure("NLL scaled", "temperature_nll", "nll", larger_is_better=False, scale=1, digits=3),
)


@dataclass(frozen=True)
class Difference:
    """What one method has more of a measure than another.

    Attributes:
        mean: Mean over the seeds.
        error: Half the width of the 95 % interval of Student over the seeds.
        measure: What differs.
    """

    mean: float
    error: float
    measure: Measure

    @property
    def verdict(self) -> int:
        """1 where it is better by more than the interval, -1 where worse, 0 where unsure."""
        if abs(self.mean) <= self.error:
            return 0
        return 1 if (self.mean > 0) == self.measure.larger_is_better else -1


def runs_of(
    results: Results, network: Network, kind: str, method: Method
) -> dict[int, dict[str, Any]]:
    """Cells of a method by seed, with the strength that was chosen; those that have run."""
    alpha = chosen_alpha(results.folder, network, kind, method)
    if method.has_entropy and alpha is None:
        return {}
    cells = {
        seed: results.cell(run_name(network, kind, method, alpha, seed))
        for seed in range(network.seeds)
    }
    return {seed: cell for seed, cell in cells.items() if cell is not None}


def mean_and_deviation(runs: Mapping[int, dict[str, Any]], measure: Measure) -> tuple[float, float]:
    """Mean and standard deviation over the seeds; the deviation of a single one is 0."""
    values = [run["metrics"][measure.stage][measure.metric] for run in runs.values()]
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), deviation


def mean_temperature(runs: Mapping[int, dict[str, Any]]) -> float | None:
    """Mean over the seeds of the temperature of least NLL; None without runs."""
    return float(np.mean([run["temperature"] for run in runs.values()])) if runs else None


def difference(
    runs: Mapping[int, dict[str, Any]], others: Mapping[int, dict[str, Any]], measure: Measure
) -> Difference | None:
    """The first runs minus the others, paired by their seeds; None with fewer than two in common.

    A seed gives both runs the same initial parameters, order and augmentation.
    """
    seeds = sorted(runs.keys() & others.keys())
    if len(seeds) < 2:  # noqa: PLR2004 - one says nothing about other seeds
        return None

    def values(of: Mapping[int, dict[str, Any]]) -> list[float]:
        return [of[seed]["metrics"][measure.stage][measure.metric] for seed in seeds]

    return Difference(*paired_difference(values(runs), values(others)), measure)


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Mean of the differences, and half the width of Student's 95 % interval.

    At least two pairs.
    """
    pairs = np.subtract(ours, theirs)
    quantile = student.ppf((1 + LEVEL) / 2, len(pairs) - 1)
    return float(pairs.mean()), float(quantile * pairs.std(ddof=1) / np.sqrt(len(pairs)))


def differences(
    runs: Mapping[int, dict[str, Any]], others: Mapping[int, dict[str, Any]]
) -> list[Difference]:
    """Differences of all measures that have one."""
    found = (difference(runs, others, measure) for measure in MEASURES)
    return [each for each in found if each is not None]
