"""Reads from a score file which labels of the training samples not to believe.

A score file with suspicion holds the probability that each label is wrong, and the likeliest other
class.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import ConfigError, UnmatchedScores
from difficulty_service.marks.record import MARK_COLUMN
from difficulty_service.scores.file import OpenScoreFile
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES
from trainer.config import LossConfig
from trainer.samples import Samples
from trainer.training.supervision import LabelBeliefs
from trainer.weights.score_files import (
    describe_other_labels,
    examples_of,
    positions_of,
    texts_at,
    unique_ids,
)

COLUMNS = ("sample_id", "label", "label_name", "p_wrong", "suggested_label_name")


def label_beliefs(samples: Samples, scores: OpenScoreFile, config: LossConfig) -> LabelBeliefs:
    """Reads what a score file says about the labels of training samples; joined by sample id."""
    path, present = scores.path, scores.schema.names
    optional = (MARK_COLUMN, *LIKELIEST_CLASSES, *LIKELIEST_CLASSES.values())
    table = scores.read([*COLUMNS, *(each for each in optional if each in present)])
    probabilities = trust_in_labels(table, len(samples.class_names))
    if np.isnan(probabilities).all():
        raise ConfigError(f"no sample of {path} has a p_wrong", "score labels of several classes")
    scored_ids = unique_ids(table, path)
    ids = pa.array(list(samples.sample_ids), pa.large_string())
    positions = positions_of(ids, scored_ids)
    found = np.append(probabilities, np.nan)[positions]
    known = ~np.isnan(found)
    _require_known(ids, known, positions, path, config)
    names = np.array(samples.class_names, dtype=object)
    given = names[samples.labels.numpy()]
    for problem in describe_other_labels(samples, texts_at(table["label_name"], positions), path):
        raise UnmatchedScores(
            problem,
            "score the labels that are trained on; data.label_noise changes labels after scoring",
        )
    suggested = np.where(known, texts_at(table["suggested_label_name"], positions), given)
    return LabelBeliefs(
        probabilities=torch.from_numpy(np.where(known, found, 1.0)),
        known=torch.from_numpy(known),
        others=_class_indices(suggested, samples.class_names, path),
    )


def trust_in_labels(table: pa.Table, num_classes: int) -> NDArray[np.float64]:
    """Probability that each label of a score file is right, as training takes it.

    `p_wrong` takes a label for right wherever ambiguity explains it, so that more labels are wrong
    than it says; by the features alone, every ambiguous label is in doubt. This is the mean of
    1 - `p_wrong` and the probability of the label by the features alone, as far as the file has the
    likeliest classes; 1 where a person verified the label. As weights it is more accurate than
    1 - `p_wrong` and better calibrated than the other; as shares of soft targets it has a smaller
    NLL than either (`docs/training.md`).

    Args:
        table: Rows of a score file.
        num_classes: Number of classes of the dataset, above 1.

    Returns:
        NaN where there is no `p_wrong`. Shape (samples,).
    """
    p_wrong = table["p_wrong"].cast(pa.float64()).to_numpy()
    if not {*LIKELIEST_CLASSES, *LIKELIEST_CLASSES.values()} <= {*table.column_names}:
        return 1 - p_wrong
    own = probability_of_label(table, num_classes)
    # A file without a probability of its class has nothing to add to p_wrong.
    trust = 1 - np.where(np.isnan(own), p_wrong, (p_wrong + 1 - own) / 2)
    if MARK_COLUMN in table.column_names:
        trust[table[MARK_COLUMN].is_valid().to_numpy() & ~np.isnan(p_wrong)] = 1
    return trust


def probability_of_label(table: pa.Table, num_classes: int) -> NDArray[np.float64]:
    """Probability of each given class by the features alone, NaN where there is none.

    Classes that are not among the likeliest have what these leave, in equal parts.
    """
    labels = table["label"].to_numpy()
    left = np.ones(len(labels))
    own = np.full(len(labels), np.nan)
    for label, probability in LIKELIEST_CLASSES.items():
        shares = table[probability].cast(pa.float64()).to_numpy()
        is_own = table[label].fill_null(-1).to_numpy() == labels
        own = np.where(is_own, shares, own)
        left -= np.nan_to_num(shares)
    rest = left.clip(0) / max(1, num_classes - len(LIKELIEST_CLASSES))
    known = ~np.isnan(table[next(iter(LIKELIEST_CLASSES.values()))].cast(pa.float64()).to_numpy())
    return np.where(known & np.isnan(own), rest, own)


def _require_known(
    ids: pa.Array,
    known: NDArray[np.bool_],
    positions: NDArray[np.int64],
    path: Path,
    config: LossConfig,
) -> None:
    if known.all() or (config.missing == "keep" and known.any()):
        return
    problems = [
        f"{len(some):,} of {len(ids):,} training samples {problem}, {examples_of(some)}"
        for some, problem in (
            (ids.filter(pa.array(positions < 0)), "are not in it"),
            (ids.filter(pa.array(~known & (positions >= 0))), "have no p_wrong"),
        )
        if len(some)
    ]
    remedy = "score the training dataset"
    if known.any():
        remedy += ', or set loss.missing = "keep" to train on the labels of such samples as given'
    raise UnmatchedScores(f"{path} does not fit the dataset: {'; '.join(problems)}", remedy)


def _class_indices(names: NDArray[np.object_], class_names: tuple[str, ...], path: Path) -> Tensor:
    """The class of each name. Shape (samples,)."""
    index = {name: position for position, name in enumerate(class_names)}
    unknown = sorted({str(name) for name in names if name not in index})
    if unknown:
        raise UnmatchedScores(
            f"{path} suggests labels of classes that the training samples lack: "
            f"{', '.join(map(repr, unknown[:3]))}",
            "score the training dataset",
        )
    return torch.tensor([index[name] for name in names], dtype=torch.int64)
