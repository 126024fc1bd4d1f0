"""The record of metrics of one model: every metric, as trained and after temperature scaling.

A record holds fractions, nats and areas, never percent, and None where a metric has no value. The
positives are the correct predictions in misclassification detection and the OOD samples in OOD
detection; the FPR at 95 % TPR is that of the highest threshold that finds at least 95 % of them,
and the one of a name that ends in "_crl" that of the nearest corner of the ROC curve.

The file of a model's ROC curves, for misclassification and OOD detection at every stage.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from difficulty_service.base.errors import TrainingError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import UNREADABLE, open_parquet, write_parquet
from trainer.evaluation.temperature_scaling import (
    fit_temperature_by_adaptive_ece,
    fit_temperature_by_ece,
    fit_temperature_by_nll,
)
from trainer.metrics import METRICS
from trainer.metrics.bootstrap import (
    Interval,
    Resampling,
    bootstrap_intervals,
    detection_intervals,
)
from trainer.metrics.calibration import sure_samples
from trainer.metrics.mahalanobis import FEATURE_SCORES
from trainer.metrics.ood import (
    OOD_SCORES,
    detection_by_score,
    joined_scores,
    ood_score,
    scores_of_both,
)
from trainer.metrics.ranking import Convention, RocCurve, roc_curve
from trainer.metrics.selective import (
    CERTAINTIES,
    MisclassificationDetection,
    accuracy_over_rejection,
    augrc,
    aurc,
    certainty_and_correct,
    e_aurc,
    misclassification_detection,
)
from trainer.metrics.weighted import REJECTED_SHARES
from trainer.run_folder import read_json, write_json

MetricValues = dict[str, float | None]
"""Value of each metric by name; None where a metric has no value."""

STAGES = ("raw", "temperature_nll", "temperature_ece", "temperature_adaptive_ece")
"""As trained; scaled by the temperature of least NLL, of least ECE and of least adaptive ECE."""

FPR_CONVENTION: Convention = "first"

FEW_CLASSES = 5
"""Number of classes up to which every target is among the five likeliest."""


def evaluate_predictions(
    logits: Tensor,
    targets: Tensor,
    validation: tuple[Tensor, Tensor] | None = None,
    resampling: Resampling | None = None,
) -> dict[str, MetricValues]:
    """Computes every metric before and after temperature scaling.

    Logits and targets for validation are those of samples that the model was not trained on;
    without them there is only the stage "raw". The keys are those of STAGES; after temperature
    scaling there is also the "temperature", and "temperature_at_bound", 1 where the NLL has no
    minimum.
    """
    record = {}
    for stage, temperature in fit_temperatures(validation).items():
        scaled = scale_logits(logits, temperature)
        record[stage] = temperature | compute_metrics(scaled, targets, resampling)
    return record


def fit_temperatures(validation: tuple[Tensor, Tensor] | None) -> dict[str, MetricValues]:
    """Fits the temperature of every stage, on samples that the model was not trained on.

    For the NLL there is also "temperature_at_bound"; nothing for "raw", which is the only stage
    without validation samples.
    """
    if validation is None:
        return {"raw": {}}
    by_nll = fit_temperature_by_nll(*validation)
    return {
        "raw": {},
        "temperature_nll": {
            "temperature": by_nll.temperature,
            "temperature_at_bound": float(by_nll.at_bound),
        },
        "temperature_ece": {"temperature": fit_temperature_by_ece(*validation)},
        "temperature_adaptive_ece": {"temperature": fit_temperature_by_adaptive_ece(*validation)},
    }


def scale_logits(logits: Tensor, temperature: MetricValues) -> Tensor:
    """Logits divided by a temperature that `fit_temperatures` returned; as they are for "raw"."""
    divisor = temperature.get("temperature")
    return logits if divisor is None else logits.double() / divisor


def compute_metrics(
    logits: Tensor, targets: Tensor, resampling: Resampling | None = None
) -> MetricValues:
    """Computes every metric of unscaled logits, by name.

    These are METRICS, without the top-5 accuracy of five classes or fewer; "s99_share" and
    "s99_accuracy" of the samples with confidence 0.99 or more; and for each of CERTAINTIES, the
    suffix of the name, misclassification detection, the areas under risk and coverage (AURC, E-AURC
    and AUGRC), and the accuracy after rejecting 10, 20 and 50 % of the samples.

    A bootstrap adds "_low" and "_high" of every metric that has a value, the ends of its interval,
    which for a calibration error may lie above its value.
    """
    values: MetricValues = {
        name: metric(logits, targets)
        for name, metric in METRICS.items()
        if name != "top_5_accuracy" or logits.shape[1] > FEW_CLASSES
    }
    sure = sure_samples(logits, targets)
    values |= {"s99_share": sure.share, "s99_accuracy": sure.accuracy}
    for by in CERTAINTIES:
        values |= _by_certainty(logits, targets, by)
    if resampling is not None:
        values |= _ends(bootstrap_intervals(logits, targets, resampling, values.keys()))
    return {name: _value(value) for name, value in values.items()}


def evaluate_ood(
    id_logits: Tensor,
    ood_logits: Tensor,
    validation: tuple[Tensor, Tensor] | None = None,
    resampling: Resampling | None = None,
    distances: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None = None,
) -> dict[str, Any]:
    """Measures how well logits separate out-of-distribution samples from in-distribution ones.

    Distances are FEATURE_SCORES of both kinds of samples, beside the scores by logits, as trained
    only.

    Returns:
        "positive" and "fpr_convention", the conventions of the numbers, and for each of OOD_SCORES
        the AUROC, the AUPR with either kind as the positives, and the FPR at 95 % TPR, as trained.
        With validation samples also each scaled stage of STAGES, with its "temperature" and the
        same numbers of scaled logits. A bootstrap adds "_low" and "_high" of every number.
    """
    record: dict[str, Any] = {"positive": "ood", "fpr_convention": FPR_CONVENTION}
    for stage, temperature in fit_temperatures(validation).items():
        scaled = scale_logits(id_logits, temperature), scale_logits(ood_logits, temperature)
        # No temperature changes the order of the largest logits.
        known = {} if stage == "raw" else {"max_logit": record["max_logit"]}
        detection = {
            by: known.get(by) or _ood_values(*scores_of_both(*scaled, by), resampling)
            for by in OOD_SCORES
        }
        record |= detection if stage == "raw" else {stage: temperature | detection}
    if distances is not None:
        for by in FEATURE_SCORES:
            record[by] = _ood_values(distances[0][by], distances[1][by], resampling)
    return record


def write_metrics(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record atomically as strict JSON; NaN and infinities become null."""
    write_json(path, _strict(record))


def add_records(path: Path, records: Mapping[str, Any]) -> None:
    """Adds records of evaluations to a file by their names; the same name replaces its record."""
    write_metrics(path, {**read_records(path), **records})


def read_records(path: Path) -> dict[str, Any]:
    """The records of evaluations in a file, by their names; none where there is no file."""
    if not path.is_file():
        return {}
    try:
        records = read_json(path)
    except TrainingError as error:
        raise TrainingError(error.problem, "delete it, and evaluate again") from error
    return records


def read_metrics(path: Path) -> dict[str, Any]:
    """Reads a record of metrics."""
    record = read_json(path)
    if not isinstance(record.get("raw"), dict):
        raise TrainingError(f"{path} has no metrics under 'raw'", "evaluate the run again")
    return record


def _by_certainty(logits: Tensor, targets: Tensor, by: str) -> MetricValues:
    """Misclassification detection and selective prediction by one measure of certainty."""
    certainty, correct = certainty_and_correct(logits, targets, by)
    # Without both correct and wrong predictions there is nothing to detect.
    some_of_both = 0 < int(correct.sum()) < len(correct)
    detection: MetricValues = dict.fromkeys(MisclassificationDetection.__annotations__)
    if some_of_both:
        detection = asdict(misclassification_detection(logits, targets, by, FPR_CONVENTION))
    curve = accuracy_over_rejection(certainty, correct, REJECTED_SHARES)
    return {
        **{f"misclassification_{name}_{by}": value for name, value in detection.items()},
        f"aurc_{by}": aurc(certainty, correct),
        f"e_aurc_{by}": e_aurc(certainty, correct),
        f"augrc_{by}": augrc(certainty, correct),
        **{
            f"accuracy_rejecting_{round(100 * share)}_percent_{by}": float(accuracy)
            for share, accuracy in zip(curve.rejected, curve.accuracies, strict=True)
        },
    }


def _ood_values(
    id_scores: Tensor, ood_scores: Tensor, resampling: Resampling | None
) -> MetricValues:
    """OOD detection by one score."""
    values: MetricValues = asdict(
        detection_by_score(*joined_scores(id_scores, ood_scores), FPR_CONVENTION)
    )
    if resampling is not None:
        values |= _ends(detection_intervals(id_scores, ood_scores, resampling))
    return values


def _ends(intervals: Mapping[str, Interval]) -> MetricValues:
    """The ends of intervals, by the names of their metrics and "_low" or "_high"."""
    ends: MetricValues = {}
    for name, interval in intervals.items():
        ends |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return ends


def _value(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else float(number)


def _strict(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Replaces the numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return _value(value) if isinstance(value, float) else value


MISCLASSIFICATION = "misclassification"
"""Name of the detection of errors; OOD detection has the name of its dataset."""

REMEDY = "evaluate the run again"

SCHEMA = pa.schema(
    {
        "detection": pa.string(),
        "stage": pa.string(),
        "by": pa.string(),
        "false_positive_rate": pa.float64(),
        "true_positive_rate": pa.float64(),
    }
)


@dataclass(frozen=True)
class NamedCurve:
    """A ROC curve and what it is of.

    Attributes:
        detection: "misclassification", with correct predictions as the positives, or the name of
            an OOD dataset, with its samples as the positives.
        stage: One of `record.STAGES`.
    """

    detection: str
    stage: str
    by: str
    curve: RocCurve


def misclassification_curves(
    logits: Tensor, targets: Tensor, validation: tuple[Tensor, Tensor] | None = None
) -> list[NamedCurve]:
    """ROC curves of misclassification detection; none without both correct and wrong predictions.

    Arguments and errors as in `record.evaluate_predictions`.
    """
    curves = []
    for stage, temperature in fit_temperatures(validation).items():
        scaled = scale_logits(logits, temperature)
        for by in CERTAINTIES:
            certainty, correct = certainty_and_correct(scaled, targets, by)
            if 0 < int(correct.sum()) < len(correct):
                curve = roc_curve(certainty, correct)
                curves.append(NamedCurve(MISCLASSIFICATION, stage, by, curve))
    return curves


def ood_curves(
    id_logits: Tensor,
    ood_logits: Tensor,
    name: str,
    validation: tuple[Tensor, Tensor] | None = None,
    distances: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None = None,
) -> list[NamedCurve]:
    """ROC curves of OOD detection; arguments and errors as in `record.evaluate_ood`."""
    logits, is_ood = joined_scores(id_logits.cpu(), ood_logits.cpu())
    curves = []
    for stage, temperature in fit_temperatures(validation).items():
        scaled = scale_logits(logits, temperature)
        curves += [
            NamedCurve(name, stage, by, roc_curve(ood_score(scaled, by), is_ood))
            for by in OOD_SCORES
        ]
    if distances is not None:
        for by in FEATURE_SCORES:
            joined = joined_scores(distances[0][by], distances[1][by])
            curves.append(NamedCurve(name, "raw", by, roc_curve(*joined)))
    return curves


def write_curves(path: Path, curves: Sequence[NamedCurve]) -> None:
    """Writes curves atomically as Parquet, one row per point; an existing file is replaced."""
    tables = [
        pa.table(
            {
                "detection": [each.detection] * len(each.curve.false_positive_rates),
                "stage": [each.stage] * len(each.curve.false_positive_rates),
                "by": [each.by] * len(each.curve.false_positive_rates),
                "false_positive_rate": each.curve.false_positive_rates,
                "true_positive_rate": each.curve.true_positive_rates,
            },
            schema=SCHEMA,
        )
        for each in curves
    ]
    with replacing(path) as temporary:
        write_parquet(temporary, pa.concat_tables([SCHEMA.empty_table(), *tables]))


def read_curves(path: Path) -> list[NamedCurve]:
    """Reads the curves of a file that `write_curves` wrote, in their order."""
    try:
        with open_parquet(path) as file:
            table = file.read(columns=SCHEMA.names)
    except FileNotFoundError:
        raise TrainingError(f"the ROC curves {path} are missing", REMEDY) from None
    except UNREADABLE as error:
        raise TrainingError(f"the ROC curves {path} are damaged: {error}", REMEDY) from error
    if table.schema.names != SCHEMA.names:
        raise TrainingError(f"{path} holds no ROC curves: {table.schema.names}", REMEDY)
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in table.to_pylist():
        detection, stage, by, *rates = row.values()
        points.setdefault((detection, stage, by), []).append(tuple(rates))
    return [
        NamedCurve(*key, RocCurve(*np.array(rates, dtype=np.float64).T))
        for key, rates in points.items()
    ]
