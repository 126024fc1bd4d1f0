"""What a classifier says about each sample as columns, from the predictions that a run saved."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import log_softmax

from difficulty_service.base.checksums import load_checked, verify_zip
from difficulty_service.base.errors import AuditError
from difficulty_service.base.numpy_files import read_arrays

ENDING = ".npz"
JOIN = "sample_id"
INPUTS = "inputs.json"
"""File beside the predictions with the name of each class."""

COLUMNS = {
    "loss": "cross-entropy of the label, in nats",
    "doubt": "1 - the largest probability",
    "entropy": "entropy of the probabilities, in nats",
    "wrong": "whether the predicted class is not the label",
    "prediction": "predicted class",
}
"""Columns beside the sample id, and what they are; the numbers are larger where it is harder."""

ARRAYS = ("sample_ids", "logits", "targets")


def is_predictions(location: str) -> bool:
    """Whether a location is that of a file of predictions, by its ending."""
    return location.lower().endswith(ENDING)


def read_prediction_columns(path: Path) -> pa.Table:
    """The column JOIN and those of COLUMNS, one row for each sample of a seed's `test.npz`.

    All are in float64 and of the labels that the run was evaluated on. `prediction` is the name of
    the class where `inputs.json` lies beside the predictions, as it does in a run, so that it can
    be compared with scores whose classes are in another order; otherwise it is the class index.
    """
    arrays = _read_arrays(path)
    sample_ids, logits, targets = (arrays[name] for name in ("sample_ids", "logits", "targets"))
    logarithms = log_softmax(logits.astype(np.float64), axis=1)
    probabilities = np.exp(logarithms)
    predicted = logits.argmax(axis=1)
    names = _class_names(path.parent / INPUTS)
    is_named = len(names) == logits.shape[1]
    # A probability of 0 has a logarithm of minus infinity and adds nothing to the entropy.
    products = np.where(probabilities > 0, probabilities * logarithms, 0.0)
    return pa.table(
        {
            JOIN: pa.array(sample_ids.astype(str).tolist(), pa.string()),
            "loss": -logarithms[np.arange(len(targets)), targets],
            "doubt": 1 - probabilities.max(axis=1),
            "entropy": -products.sum(axis=1),
            "wrong": predicted != targets,
            "prediction": [names[index] for index in predicted] if is_named else predicted,
        }
    )


def _read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        verify_zip(path)
        read = read_arrays(path, lambda names: [name for name in ARRAYS if name in names])
        arrays = {name: read[name] for name in ARRAYS}
    except FileNotFoundError:
        raise AuditError(f"there is no file of predictions {path}", parameter="against") from None
    except KeyError as error:
        raise AuditError(
            f"{path} is not a file of predictions: it has no array {error.args[0]!r}",
            "name test.npz of a seed of a run",
            parameter="against",
        ) from None
    except OSError as error:
        raise AuditError(f"{path} is damaged: {error}", "evaluate the run again") from error
    ids, logits, targets = arrays.values()
    are_numbers = logits.dtype.kind in "fiu" and targets.dtype.kind in "iu"
    is_matrix = logits.ndim == 2 and logits.shape[1] > 0  # noqa: PLR2004
    fits = are_numbers and is_matrix and ids.shape == targets.shape == logits.shape[:1]
    if not fits or ((targets < 0) | (targets >= logits.shape[1])).any():
        raise AuditError(
            f"{path} has arrays that do not fit together: ids of shape {ids.shape}, logits of "
            f"{logits.dtype} of shape {logits.shape}, targets of {targets.dtype} of shape "
            f"{targets.shape}",
            "evaluate the run again",
        )
    return arrays


def _class_names(path: Path) -> list[str]:
    """The names of the classes; none where there is no such file."""
    try:
        return list(load_checked(path.read_text("utf-8"))["class_names"])
    except FileNotFoundError:
        return []
    except (KeyError, TypeError, ValueError) as error:
        raise AuditError(f"{path} is damaged: {error}", "train again") from error
