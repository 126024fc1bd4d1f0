"""The record of metrics of one model: every metric, as trained and after temperature scaling.

A record holds fractions, nats and areas, never percent, and None where a metric has no value. In
misclassification detection the right predictions are the positives, in OOD detection the OOD
samples; the FPR at 95 % TPR is that of the highest threshold that finds at least 95 % of them.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from difficulty_service.errors import TrainingError
from trainer.evaluation.temperature_scaling import fit_temperature_by_ece, fit_temperature_by_nll
from trainer.metrics import METRICS
from trainer.metrics.bootstrap import Resampling, bootstrap_intervals
from trainer.metrics.calibration import sure_samples
from trainer.metrics.ood import OOD_SCORES, ood_detection
from trainer.metrics.ranking import Convention
from trainer.metrics.selective import (
    CERTAINTIES,
    MisclassificationDetection,
    accuracy_over_rejection,
    aurc,
    certainty_and_correct,
    e_aurc,
    misclassification_detection,
)
from trainer.run_folder import read_json, write_json

Measures = dict[str, float | None]
"""Value of each metric by name; None where it has none."""

STAGES = ("raw", "temperature_nll", "temperature_ece")
"""As trained; with the temperature of least NLL; with that of least ECE."""

REJECTED_SHARES = (0.1, 0.2, 0.5)

FPR_CONVENTION: Convention = "first"

FEW_CLASSES = 5
"""With so many or fewer every target is among the five likeliest."""


def judge(
    logits: Tensor,
    targets: Tensor,
    validation: tuple[Tensor, Tensor] | None = None,
    resampling: Resampling | None = None,
) -> dict[str, Measures]:
    """Every metric before and after temperature scaling, by stage.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        validation: Logits and targets that the temperatures are fitted on, of samples that the
            model was not trained on; without them there is only the stage "raw".
        resampling: Adds bootstrap intervals, as in `measure`.

    Returns:
        For each of STAGES what `measure` gives; the scaled ones with their "temperature", and
        with "temperature_at_bound", 1 where the NLL has no minimum to be found.

    Raises:
        MetricError: Predictions that cannot be judged: shapes that do not fit together, logits
            that are not finite, or a target that is not one of the classes.
    """
    record = {"raw": measure(logits, targets, resampling)}
    if validation is None:
        return record
    by_nll = fit_temperature_by_nll(*validation)
    by_ece = fit_temperature_by_ece(*validation)
    fitted: dict[str, Measures] = {
        "temperature_nll": {
            "temperature": by_nll.temperature,
            "temperature_at_bound": float(by_nll.at_bound),
        },
        "temperature_ece": {"temperature": by_ece},
    }
    for stage, temperature in fitted.items():
        scaled = logits.double() / float(temperature["temperature"] or math.nan)
        record[stage] = temperature | measure(scaled, targets, resampling)
    return record


def measure(logits: Tensor, targets: Tensor, resampling: Resampling | None = None) -> Measures:
    """Every metric of these very logits, by name.

    Those of METRICS but for the top-5 accuracy of five classes or fewer; "s99_share" and
    "s99_accuracy" of the samples with confidence 0.99 or more; and for each certainty of
    CERTAINTIES, in the end of the name, the detection of misclassified samples, the areas under
    risk and coverage, and the accuracy after rejecting 10, 20 and 50 % of the samples.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        resampling: Adds "_low" and "_high" of accuracy, NLL, Brier score and ECE, the ends of
            their bootstrap intervals; those of the ECE may lie above its value.

    Raises:
        MetricError: As `judge`.
    """
    measures: Measures = {
        name: metric(logits, targets)
        for name, metric in METRICS.items()
        if name != "top_5_accuracy" or logits.shape[1] > FEW_CLASSES
    }
    if resampling is not None:
        for name, interval in bootstrap_intervals(logits, targets, resampling).items():
            measures |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    sure = sure_samples(logits, targets)
    measures |= {"s99_share": sure.share, "s99_accuracy": sure.accuracy}
    for by in CERTAINTIES:
        measures |= _by_certainty(logits, targets, by)
    return {name: _value(value) for name, value in measures.items()}


def judge_ood(id_logits: Tensor, ood_logits: Tensor) -> dict[str, Any]:
    """How well a model's logits tell samples of another kind from its own.

    Args:
        id_logits: Of the data the model was made for. Shape (samples, classes).
        ood_logits: Of other data. Shape (other samples, classes).

    Returns:
        "positive" and "fpr_convention", which say how to read the numbers, and for each score of
        OOD_SCORES the AUROC, the AUPR with either kind as the positives, and the FPR at 95 % TPR.

    Raises:
        MetricError: Logits that are not finite or not (samples, classes).
    """
    found = {
        by: asdict(ood_detection(id_logits, ood_logits, by, FPR_CONVENTION)) for by in OOD_SCORES
    }
    return {"positive": "ood", "fpr_convention": FPR_CONVENTION, **found}


def write_metrics(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record as strict JSON, whole or not at all; NaN and infinities become null."""
    write_json(path, _strict(record))


def read_metrics(path: Path) -> dict[str, Any]:
    """Reads a record of metrics.

    Raises:
        TrainingError: The file is not there, damaged, or without metrics.
    """
    record = read_json(path)
    if not isinstance(record.get("raw"), dict):
        raise TrainingError(f"{path} has no metrics under 'raw'; evaluate the run again")
    return record


def _by_certainty(logits: Tensor, targets: Tensor, by: str) -> Measures:
    """Detection and selective prediction by one certainty."""
    certainty, correct = certainty_and_correct(logits, targets, by)
    # Nothing can be told apart where all predictions are right, or none is.
    some_of_both = 0 < int(correct.sum()) < len(correct)
    detection: Measures = dict.fromkeys(MisclassificationDetection.__annotations__)
    if some_of_both:
        detection = asdict(misclassification_detection(logits, targets, by, FPR_CONVENTION))
    curve = accuracy_over_rejection(certainty, correct, REJECTED_SHARES)
    return {
        **{f"misclassification_{name}_{by}": value for name, value in detection.items()},
        f"aurc_{by}": aurc(certainty, correct),
        f"e_aurc_{by}": e_aurc(certainty, correct),
        **{
            f"accuracy_rejecting_{round(100 * share)}_percent_{by}": float(accuracy)
            for share, accuracy in zip(curve.rejected, curve.accuracies, strict=True)
        },
    }


def _value(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else float(number)


def _strict(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same without numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return _value(value) if isinstance(value, float) else value
