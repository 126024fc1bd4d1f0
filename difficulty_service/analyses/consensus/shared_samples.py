"""The samples of all inputs of a consensus, matched by id, and what its columns mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import UnmatchedScores
from difficulty_service.base.tables import count_positive
from difficulty_service.base.wording import count_of, is_or_are, list_names
from difficulty_service.scores.provenance import Consensus, ConsensusInput, Provenance
from difficulty_service.scores.score_columns import LEARNED, SCORERS, measure_of
from difficulty_service.scores.tiers import evidence_of

IDS_SHOWN = 3
"""Number of ids that a message names."""


@dataclass(frozen=True)
class LabelledIds:
    """The samples of one input, with the class name of each. Shape (samples,)."""

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
    """

    sample_ids: pa.Array
    label_names: NDArray[np.object_]
    rows: Sequence[NDArray[np.int64]]
    warnings: Sequence[str]


def share_samples(inputs: Sequence[LabelledIds]) -> SharedSamples:
    """Matches the samples of several inputs."""
    first = inputs[0]
    shared = pa.array(np.ones(len(first.sample_ids), dtype=bool))
    for each in inputs:
        if len(pc.unique(each.sample_ids)) < len(each.sample_ids):
            raise UnmatchedScores(
                f"{each.name} has a sample id more than once",
                "score the dataset again, with unique ids",
            )
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
            "a score depends on the label: score the same labels with every backbone",
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


AVERAGED = ("md", "md_agnostic", "rmd", "rmd_loo")
"""Columns of the Gaussians whose mean is the mean of log-densities, times -2."""

RANKED = (
    *AVERAGED,
    *LEARNED,
    *(scorer.name for scorer in SCORERS.values() if scorer.compute is not None),
)
"""Columns whose mean rank is from 0 for the easiest sample to 1 for the hardest."""

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "log-densities": {
        **dict.fromkeys(AVERAGED, "mean over the backbones"),
        "label_margin": "-2 times the mean log-density of the label's class, minus the smallest "
        "such number of another class; without landmarks, each sample left out of the fits",
        "nearest_label": "class of the largest mean log-density",
        "suspicion": "log-odds that the label is wrong, by the mean log-densities with landmarks "
        "and the confusions estimated from them",
        "p_wrong": "probability that the label is wrong, of those log-odds",
        "suggested_label": "likeliest class other than the label, by that posterior",
        "first_label": "class that fits best by the mean log-densities with landmarks",
        "second_label": "class that fits second best by them",
        "third_label": "class that fits third best by them",
        **dict.fromkeys(("p_first", "p_second", "p_third"), "its probability, without the label"),
        "agree": "log-odds against the label, by the mean log-densities without landmarks",
    },
    "ranks": {
        **dict.fromkeys(RANKED, "mean rank, 0 to 1"),
        "label_margin": "mean rank, counted from the margin 0, -1 to 1",
        "nearest_label": "class that most files name",
        "suspicion": "mean rank, counted from the suspicion 0, -1 to 1",
        "p_wrong": "mean probability",
        "suggested_label": "class that most files name",
        "agree": "mean rank, counted from the log-odds 0, -1 to 1",
    },
}
"""Meaning of the columns of a consensus, by what was averaged."""


def describe_consensus(
    kind: str,
    provenances: Mapping[str, Provenance],
    table: pa.Table,
    class_names: Sequence[str],
    warnings: Sequence[str],
) -> Provenance:
    """The provenance of a consensus, of what all inputs have in common; `kind` is of COLUMNS."""
    inputs = list(provenances.values())
    present = set(table.column_names)
    columns = {name: meaning for name, meaning in COLUMNS[kind].items() if name in present}
    above = {
        name: count_positive(table[name])
        for name in ("suspicion", "label_margin")
        if name in present
    }
    own = Provenance(
        backbone=" + ".join(each.backbone or "unknown" for each in inputs),
        class_names=tuple(class_names),
        reliable=all(each.reliable is not False for each in inputs),
        num_samples=len(table),
        num_scored=len(table) - table[measure_of(present)].null_count,
        num_doubtful=above.get(evidence_of(above.get("suspicion", 0)), 0),
        num_duplicates=(
            len(table) - table["duplicate_of"].null_count if "duplicate_of" in present else 0
        ),
        near_duplicates=None,
        num_near_duplicates=None,
        consensus=Consensus(
            mean_of=kind,
            inputs=tuple(
                ConsensusInput.of_provenance(name, each) for name, each in provenances.items()
            ),
            columns=columns,
        ),
        warnings=tuple(warnings),
    )
    return Provenance.in_common(inputs).updated(own)
