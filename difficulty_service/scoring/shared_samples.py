"""The samples that several sets of scores or features have in common, matched by id."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.errors import UnmatchedScores
from difficulty_service.files.wording import count_of, is_or_are, list_names

IDS_SHOWN = 3
"""Number of ids that a message names."""


@dataclass(frozen=True)
class LabelledIds:
    """The samples of one input.

    Attributes:
        name: Name of the input, for messages.
        sample_ids: Sample ids, each once.
        label_names: Class name of each sample. Shape (samples,).
    """

    name: str
    sample_ids: pa.Array
    label_names: NDArray[np.object_]


@dataclass(frozen=True)
class SharedSamples:
    """The samples that all inputs have.

    Attributes:
        sample_ids: Their ids, in the order of the first input.
        label_names: Their class names. Shape (samples,).
        rows: Row of each sample in each input. Shape (samples,) each.
        warnings: A sentence about each input that has further samples.
    """

    sample_ids: pa.Array
    label_names: NDArray[np.object_]
    rows: Sequence[NDArray[np.int64]]
    warnings: Sequence[str]


def share_samples(inputs: Sequence[LabelledIds]) -> SharedSamples:
    """Matches the samples of several inputs.

    Args:
        inputs: At least one.

    Raises:
        UnmatchedScores: An id occurs twice in an input, no sample is in all inputs, or one has
            different labels.
    """
    first = inputs[0]
    shared = pa.array(np.ones(len(first.sample_ids), dtype=bool))
    for each in inputs:
        _require_unique(each)
        shared = pc.and_(shared, pc.is_in(first.sample_ids, value_set=each.sample_ids))
    sample_ids = first.sample_ids.filter(shared)
    if not len(sample_ids):
        raise UnmatchedScores(
            f"no sample is in all of {list_names([each.name for each in inputs])}: ids look like "
            + " and ".join(repr(each.sample_ids[:1].to_pylist()) for each in inputs),
            "give scores or features of the same dataset, with the same ids",
        )
    rows = [
        pc.index_in(sample_ids, value_set=each.sample_ids).to_numpy().astype(np.int64)
        for each in inputs
    ]
    labels = first.label_names[rows[0]]
    for each, positions in zip(inputs[1:], rows[1:], strict=True):
        _require_same_labels(first.name, each, sample_ids, labels, each.label_names[positions])
    return SharedSamples(sample_ids, labels, rows, _left_out(inputs, sample_ids))


def _require_unique(each: LabelledIds) -> None:
    if len(pc.unique(each.sample_ids)) < len(each.sample_ids):
        raise UnmatchedScores(
            f"{each.name} has a sample id more than once",
            "score the dataset again, with unique ids",
        )


def _require_same_labels(
    first: str,
    other: LabelledIds,
    sample_ids: pa.Array,
    labels: NDArray[np.object_],
    others: NDArray[np.object_],
) -> None:
    differs = np.flatnonzero(labels != others)
    if len(differs):
        row = int(differs[0])
        raise UnmatchedScores(
            f"{count_of(len(differs), 'sample')} {is_or_are(len(differs))} labelled differently in "
            f"{first} and {other.name}, for example {sample_ids[row].as_py()!r}: {labels[row]!r} "
            f"and {others[row]!r}",
            "a score is that of a sample with its label: score the same labels with every backbone",
        )


def _left_out(inputs: Sequence[LabelledIds], sample_ids: pa.Array) -> list[str]:
    warnings = []
    for each in inputs:
        extra = each.sample_ids.filter(pc.invert(pc.is_in(each.sample_ids, value_set=sample_ids)))
        if len(extra):
            warnings.append(
                f"{count_of(len(extra), 'sample')} of {each.name} {is_or_are(len(extra))} not in "
                f"every other input and left out: {list_names(extra.to_pylist(), IDS_SHOWN)}"
            )
    return warnings
