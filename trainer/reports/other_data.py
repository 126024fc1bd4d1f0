"""What `difficulty evaluate` found on OOD data and corrupted images, as metrics of a seed.

`ood_auroc_msp@SVHN` is the AUROC of the OOD data named SVHN by the score `msp`, and likewise for
the other numbers of `OodDetection` and the other scores. `corrupted_ece_severity_5` is the mean
over all corruptions of the ECE at severity 5, and `corrupted_ece` that over the severities, too.
"""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from difficulty_service.images.corruptions import SEVERITIES
from trainer import run_folder
from trainer.evaluation.record import STAGES, MetricValues, read_records
from trainer.metrics.mahalanobis import FEATURE_SCORES
from trainer.metrics.ood import OOD_SCORES, OodDetection

OF = "@"
"""Between a metric of OOD detection and the name of the data."""

ALL_OOD_SCORES = (*OOD_SCORES, *FEATURE_SCORES)

SCORE_TITLES = {
    "msp": "MSP",
    "entropy": "entropy",
    "energy": "energy",
    "max_logit": "max logit",
    "mahalanobis": "Mahalanobis",
    "relative_mahalanobis": "relative Mahalanobis",
    "mahalanobis_unit": "Mahalanobis, unit length",
    "relative_mahalanobis_unit": "relative Mahalanobis, unit length",
}
"""Titles of certainties and OOD scores."""

OOD_METRICS = {
    f"ood_{rate}_{by}": (rate, by) for rate in OodDetection.__annotations__ for by in ALL_OOD_SCORES
}
"""Number and score of each metric of OOD detection, without the name of the data."""

CORRUPTED = ("accuracy", "nll", "brier_score", "ece", "adaptive_ece", "classwise_ece")
"""Metrics of corrupted images."""

CORRUPTED_METRICS = {
    f"corrupted_{metric}{ending}": (metric, severity)
    for metric in CORRUPTED
    for ending, severity in (
        ("", None),
        *((f"_severity_{severity}", severity) for severity in SEVERITIES),
    )
}
"""Metric and severity, None for all severities, of each metric of corrupted images."""

UNSCALED = ("max_logit", *FEATURE_SCORES)
"""OOD scores whose order no temperature changes."""


def metrics_of_other_data(folder: Path) -> dict[str, MetricValues]:
    """The metrics of a seed on OOD data and corrupted images by stage; empty without any."""
    values: dict[str, MetricValues] = {}
    for name, record in read_records(folder / run_folder.OOD).items():
        for stage in STAGES:
            detection = record if stage == "raw" else record.get(stage, {})
            for metric, (rate, by) in OOD_METRICS.items():
                # A record of an earlier version has fewer rates.
                is_there = rate in detection.get(by, {})
                if is_there and (stage == "raw" or by not in UNSCALED):
                    values.setdefault(stage, {})[f"{metric}{OF}{name}"] = detection[by][rate]
    corruptions = read_records(folder / run_folder.CORRUPTIONS)
    for stage in STAGES:
        for name, (metric, severity) in CORRUPTED_METRICS.items():
            found = _over_corruptions(corruptions, stage, metric, severity)
            if found is not None:
                values.setdefault(stage, {})[name] = found
    return values


def _over_corruptions(
    records: Mapping[str, Any], stage: str, metric: str, severity: int | None
) -> float | None:
    """Mean of a metric over all corruptions that have a value."""
    values = [
        record.get(stage, {}).get(metric)
        for by_severity in records.values()
        for level, record in by_severity.items()
        if severity is None or level == str(severity)
    ]
    defined = [value for value in values if value is not None]
    return statistics.fmean(defined) if defined else None
