"""Reads and writes what the tests of figures share."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.reports.figures.figure import Drawn, Figure, LeftOut


def figures_in(drawn: Drawn) -> dict[str, Figure]:
    return {each.name: each for each in drawn if isinstance(each, Figure)}


def reasons_in(drawn: Drawn) -> list[str]:
    return [f"{each.name}: {each.reason}" for each in drawn if isinstance(each, LeftOut)]


def predictions_of(run: Path, seed: int) -> Predictions:
    return read_predictions(run / f"seed-{seed}" / "test.npz")


def write(path: Path, scores: Mapping[str, float], **provenance: object) -> Path:
    table = pa.table(
        {
            "sample_id": list(scores),
            "label": pa.array([0] * len(scores), pa.int32()),
            "label_name": pa.array(["cat"] * len(scores)).dictionary_encode(),
            "rmd": pa.array(list(scores.values()), pa.float64()),
        }
    )
    write_scores(path, table, Provenance.of(provenance))
    return path
