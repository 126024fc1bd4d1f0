"""The file of a model's ROC curves, for misclassification and OOD detection at every stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from difficulty_service.errors import TrainingError
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_parquet import UNREADABLE, open_parquet, write_parquet
from trainer.evaluation.record import fit_temperatures, scale_logits
from trainer.metrics.ood import OOD_SCORES, ood_score
from trainer.metrics.ranking import RocCurve, roc_curve
from trainer.metrics.selective import CERTAINTIES, certainty_and_correct

MISCLASSIFICATION = "misclassification"
"""Name of the detection of errors; OOD detection has the location of its dataset as its name."""

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
        detection: "misclassification", with correct predictions as the positives, or the location
            of an OOD dataset, with its samples as the positives.
        stage: One of `record.STAGES`.
        by: A key of CERTAINTIES or of OOD_SCORES.
        curve: The points.
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
    location: str,
    validation: tuple[Tensor, Tensor] | None = None,
) -> list[NamedCurve]:
    """ROC curves of OOD detection; arguments and errors as in `record.evaluate_ood`."""
    is_ood = torch.arange(len(id_logits) + len(ood_logits)) >= len(id_logits)
    logits = torch.cat([id_logits.cpu(), ood_logits.cpu()])
    curves = []
    for stage, temperature in fit_temperatures(validation).items():
        scaled = scale_logits(logits, temperature)
        curves += [
            NamedCurve(location, stage, by, roc_curve(ood_score(scaled, by), is_ood))
            for by in OOD_SCORES
        ]
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
    """Reads the curves of a file that `write_curves` wrote, in their order.

    Raises:
        TrainingError: The file is missing, damaged, or holds no curves.
    """
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
