"""ROC curves of every detection and stage, in a file of points."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from trainer.evaluation.record import (
    STAGES,
    evaluate_ood,
    evaluate_predictions,
    misclassification_curves,
    ood_curves,
    write_curves,
)
from trainer.metrics.ood import OOD_SCORES
from trainer.metrics.selective import CERTAINTIES


def make_batch(seed: int, strength: float = 4.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(5, (200,), generator=generator)
    logits = 3 * torch.randn(200, 5, generator=generator)
    logits[torch.arange(200), targets] += strength
    return logits, targets


def test_the_areas_in_the_file_are_those_of_the_record(tmp_path: Path) -> None:
    batch, validation, others = make_batch(0), make_batch(1), make_batch(2, strength=0)[0]
    path = tmp_path / "roc.parquet"

    write_curves(
        path,
        [
            *misclassification_curves(*batch, validation),
            *ood_curves(batch[0], others, "photos/other", validation),
        ],
    )

    record = evaluate_predictions(*batch, validation)
    ood = evaluate_ood(batch[0], others, validation)
    expected = {}
    for stage in STAGES:
        for by in CERTAINTIES:
            area = record[stage][f"misclassification_auroc_{by}"]
            expected["misclassification", stage, by] = area
        for by in OOD_SCORES:
            area = (ood if stage == "raw" else ood[stage])[by]["auroc"]
            expected["photos/other", stage, by] = area
    areas = {
        key: np.trapezoid(curve["true_positive_rate"], curve["false_positive_rate"])
        for key, curve in pq.read_table(path).to_pandas().groupby(["detection", "stage", "by"])
    }
    assert areas == pytest.approx(expected)


def test_without_errors_there_is_no_curve() -> None:
    assert misclassification_curves(torch.eye(3), torch.arange(3)) == []


def test_without_validation_samples_there_are_curves_as_trained_only() -> None:
    curves = misclassification_curves(*make_batch(0))

    assert [(each.stage, each.by) for each in curves] == [("raw", by) for by in CERTAINTIES]


def test_a_file_without_curves_has_columns_and_no_rows(tmp_path: Path) -> None:
    write_curves(tmp_path / "roc.parquet", [])

    table = pq.read_table(tmp_path / "roc.parquet")
    assert table.num_rows == 0
    assert table.column_names[:3] == ["detection", "stage", "by"]
