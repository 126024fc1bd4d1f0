"""The file of a model's predictions for a split, which can be evaluated without the model.

The file of the Mahalanobis distances of the test samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from difficulty_service.base.checksums import add_checksum, verify_zip
from difficulty_service.base.errors import MetricError, TrainingError
from difficulty_service.base.files import replacing
from difficulty_service.base.numpy_files import read_arrays
from difficulty_service.base.tables import UNREADABLE, open_parquet, write_parquet
from trainer.metrics.mahalanobis import FEATURE_SCORES
from trainer.metrics.predictions import check_predictions

ARRAYS = ("sample_ids", "logits", "targets")

REMEDY = "train or evaluate again to replace it"


@dataclass(frozen=True)
class Predictions:
    """Logits and targets of samples.

    Attributes:
        logits: Float32. Shape (samples, classes).
        targets: Class indices, int64. Shape (samples,).
    """

    sample_ids: Sequence[str]
    logits: Tensor
    targets: Tensor


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Writes predictions atomically."""
    _check(path, predictions)
    with replacing(path) as temporary:
        with temporary.open("wb") as file:
            np.savez(
                file,
                sample_ids=np.asarray(list(predictions.sample_ids), dtype=np.str_),
                logits=predictions.logits.detach().cpu().float().numpy(),
                targets=predictions.targets.detach().cpu().long().numpy(),
            )
        add_checksum(temporary)


def read_predictions(path: Path) -> Predictions:
    """Reads predictions."""
    try:
        verify_zip(path)
        arrays = read_arrays(path, lambda names: [name for name in ARRAYS if name in names])
        predictions = Predictions(
            sample_ids=tuple(arrays["sample_ids"].tolist()),
            logits=torch.from_numpy(arrays["logits"]),
            targets=torch.from_numpy(arrays["targets"]),
        )
    except FileNotFoundError:
        raise TrainingError(f"the file of predictions {path} is missing", REMEDY) from None
    except KeyError as error:
        raise TrainingError(f"{path} lacks an array: {error}", REMEDY) from error
    except (OSError, TypeError, ValueError) as error:
        raise TrainingError(f"the predictions {path} are damaged: {error}", REMEDY) from error
    _check(path, predictions)
    return predictions


def write_distances(path: Path, sample_ids: Sequence[str], scores: Mapping[str, Tensor]) -> None:
    """Writes FEATURE_SCORES of each sample atomically, as Parquet."""
    columns = {"sample_id": list(sample_ids), **{by: each.numpy() for by, each in scores.items()}}
    with replacing(path) as temporary:
        write_parquet(temporary, pa.table(columns))


def read_distances(path: Path) -> dict[str, float]:
    """The squared distance of each sample from its nearest class; none where there is no file."""
    if not path.is_file():
        return {}
    try:
        with open_parquet(path) as file:
            columns = file.read(columns=["sample_id", FEATURE_SCORES[0]]).to_pydict()
        return dict(zip(columns["sample_id"], columns[FEATURE_SCORES[0]], strict=True))
    except (KeyError, *UNREADABLE) as error:
        raise TrainingError(
            f"the distances {path} are damaged: {error}", "delete it, and evaluate again"
        ) from error


def _check(path: Path, predictions: Predictions) -> None:
    if len(predictions.sample_ids) != len(predictions.logits):
        raise TrainingError(
            f"{path}: {len(predictions.sample_ids)} sample ids beside "
            f"{len(predictions.logits)} rows of logits",
            "give one id per row",
        )
    try:
        check_predictions(predictions.logits, predictions.targets)
    except MetricError as error:
        raise TrainingError(f"{path}: {error.problem}", *error.remedy) from error
