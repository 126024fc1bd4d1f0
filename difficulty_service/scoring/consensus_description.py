"""The metadata of a consensus: what it was made of, and what its columns mean."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.provenance import Consensus, ConsensusInput, Provenance
from difficulty_service.score_columns import SCORERS

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "log-densities": {
        "md": "mean over the backbones",
        "md_agnostic": "mean over the backbones",
        "rmd": "mean over the backbones",
        "rmd_loo": "mean over the backbones",
        "label_margin": "-2 times the mean log-density of the label's class, minus the smallest "
        "such number of another class; without landmarks, each sample left out of the fits",
        "nearest_label": "class of the largest mean log-density",
        "suspicion": "log-odds that the label is wrong, by the mean log-densities with landmarks "
        "and the confusions estimated from them",
        "label_probability": "the same posterior at the scales that the labels chose",
        "suspected_label": "likeliest class other than the label, by that posterior",
        "agree": "log-odds against the label, by the mean log-densities without landmarks",
    },
    "ranks": {
        "md": "mean rank, 0 to 1",
        "md_agnostic": "mean rank, 0 to 1",
        "rmd": "mean rank, 0 to 1",
        "rmd_loo": "mean rank, 0 to 1",
        **{
            scorer.name: "mean rank, 0 to 1"
            for scorer in SCORERS.values()
            if scorer.compute is not None
        },
        "label_margin": "mean rank, counted from the margin 0, -1 to 1",
        "nearest_label": "class that most files name",
        "suspicion": "mean rank, counted from the suspicion 0, -1 to 1",
        "label_probability": "mean probability",
        "suspected_label": "class that most files name",
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
    """The provenance of a consensus.

    Args:
        kind: What was averaged: "log-densities" or "ranks".
        provenances: Provenance of each input, by its name.
        table: The consensus.
        class_names: Name of each class index.
        warnings: Warnings about the inputs.

    Returns:
        What all inputs have in common, their backbones, counts, and under `consensus`
        what was averaged, the inputs, and the meaning of each column.
    """
    inputs = list(provenances.values())
    present = set(table.column_names)
    columns = {name: meaning for name, meaning in COLUMNS[kind].items() if name in present}
    evidence = next((name for name in ("suspicion", "label_margin") if name in present), None)
    own = Provenance(
        backbone=" + ".join(each.backbone or "unknown" for each in inputs),
        class_names=tuple(class_names),
        reliable=all(each.reliable is not False for each in inputs),
        num_samples=len(table),
        num_scored=len(table) - table["rmd"].null_count,
        num_doubtful=_count_above_0(table[evidence]) if evidence else 0,
        num_duplicates=(
            len(table) - table["duplicate_of"].null_count if "duplicate_of" in present else 0
        ),
        near_duplicates=None,
        num_near_duplicates=None,
        consensus=Consensus(
            mean_of=kind,
            inputs=tuple(
                ConsensusInput(
                    name=name,
                    backbone=each.backbone,
                    weights_sha256=each.weights_sha256,
                    features=each.features,
                    feature_dim=each.feature_dim,
                    fingerprint=each.fingerprint,
                    shrinkage=each.shrinkage,
                )
                for name, each in provenances.items()
            ),
            columns=columns,
        ),
        warnings=tuple(warnings),
    )
    return Provenance.in_common(inputs).updated(own)


def _count_above_0(column: pa.ChunkedArray) -> int:
    return int(pc.sum(pc.greater(column, 0)).as_py() or 0)
