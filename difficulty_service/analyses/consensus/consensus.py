"""What several score files say together: the mean of the ranks that each gives to a sample.

Scores of different backbones have no common unit, but their ranks do. Where 0 separates labels that
fit from those that do not, ranks are counted from there, so that the mean keeps that meaning.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.analyses.consensus.density_consensus import density_consensus
from difficulty_service.analyses.consensus.shared_samples import (
    RANKED,
    LabelledIds,
    describe_consensus,
    share_samples,
)
from difficulty_service.base.errors import ScoreFileError
from difficulty_service.base.tables import to_arrow
from difficulty_service.features.array_files import is_array_file, open_features
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scores.file import ScoreFile, read_scores, to_schema
from difficulty_service.scores.score_columns import measure_of, require_columns
from difficulty_service.scoring.ranking import percentiles

SIGNED = ("label_margin", "suspicion", "agree")
"""Columns whose ranks are counted from 0: above it, a label fits less than another class."""

MEASURE_LEARNED = "el2n"
"""Column that orders files of how samples are learned."""

OTHER_CLASSES = {"nearest_label": "label_margin", "suggested_label": "suspicion"}
"""Columns of classes, and the column whose larger rank decides between two of them."""

Numbers = NDArray[np.float64]
Texts = NDArray[np.object_]


def rank_consensus(files: Mapping[str, ScoreFile]) -> ScoreFile:
    """The consensus of the samples and columns that all files have, in the order of the first.

    A number that one file lacks is null. `p_wrong` is the mean; another class is that of
    most files, or else of the file that is surest.
    """
    # Of how samples are learned there are files without RMD.
    measures = {measure_of(file.table.column_names) for file in files.values()}
    measure = measures.pop() if measures == {MEASURE_LEARNED} else "rmd"
    for name, file in files.items():
        require_columns([measure], file.table.column_names, name)
    tables = {name: file.table.combine_chunks() for name, file in files.items()}
    shared = share_samples(
        [
            LabelledIds(
                name,
                table["sample_id"].cast(pa.string()).combine_chunks(),
                _texts(table, "label_name"),
            )
            for name, table in tables.items()
        ]
    )
    rows = [
        table.take(pa.array(positions))
        for table, positions in zip(tables.values(), shared.rows, strict=True)
    ]
    shared_columns = set.intersection(*({*table.column_names} for table in rows))
    ranks = {
        name: [_ranks(_numbers(table, name), signed=name in SIGNED) for table in rows]
        for name in (*RANKED, *SIGNED)
        if name in shared_columns
    }
    columns: dict[str, Any] = {
        name: to_arrow(np.mean(each, axis=0)) for name, each in ranks.items()
    }
    if "p_wrong" in shared_columns:
        columns["p_wrong"] = to_arrow(
            np.mean([_numbers(table, "p_wrong") for table in rows], axis=0)
        )
    mean = np.mean(ranks[measure], axis=0)
    columns["percentile"] = to_arrow(percentiles(mean, np.sort(mean[~np.isnan(mean)])))
    names = _class_names(next(iter(files.values())), shared.label_names, rows)
    index = {name: position for position, name in enumerate(names)}
    classes = {"label": shared.label_names} | {
        column: _most_named([_texts(table, f"{column}_name") for table in rows], ranks[decisive])
        for column, decisive in OTHER_CLASSES.items()
        if {f"{column}_name", decisive} <= shared_columns
    }
    for column, texts in classes.items():
        columns[column] = pa.array([index.get(text) for text in texts], pa.int32())
        columns[f"{column}_name"] = pa.array(texts, pa.string()).dictionary_encode()
    table = to_schema(pa.table({"sample_id": shared.sample_ids, **columns}))
    provenances = {name: file.provenance for name, file in files.items()}
    return ScoreFile(table, describe_consensus("ranks", provenances, table, names, shared.warnings))


def _ranks(scores: Numbers, *, signed: bool) -> Numbers:
    """Ranks from 0 to 1, NaN where there is no score, or only one in all.

    The rank of the border between the scores up to 0 and those above it is subtracted from `signed`
    ones.
    """
    ordered = np.sort(scores[~np.isnan(scores)])
    ranks = percentiles(scores, ordered).astype(np.float64)
    if not signed or len(ordered) < 2:  # noqa: PLR2004 - one sample has no rank
        return ranks
    border = np.searchsorted(ordered, 0, side="right") - 0.5
    centred: Numbers = ranks - border / (len(ordered) - 1)
    return centred


def _most_named(names: Sequence[Texts], ranks: Sequence[Numbers]) -> Texts:
    """The class that most files name for each sample; of several, that of the largest rank."""
    stacked = np.array(names, dtype=object)
    votes = (stacked[:, None] == stacked[None]).sum(axis=1).astype(np.float64)
    votes[np.array([[name is None for name in file] for file in names])] = -1
    votes += np.nan_to_num(np.array(ranks), nan=-1.0) / 4  # ranks differ by 2 at most
    chosen: Texts = np.take_along_axis(stacked, votes.argmax(axis=0)[None], axis=0)[0]
    return chosen


def _class_names(first: ScoreFile, labels: Texts, tables: Sequence[pa.Table]) -> list[str]:
    """The name of each class index: those of the first file, then others in alphabetical order."""
    names = list(first.provenance.class_names)
    if not names:
        pairs = sorted(
            {*zip(first.table["label"].to_pylist(), _texts(first.table, "label_name"), strict=True)}
        )
        names = [name for _, name in pairs]
    named = {*labels}
    for table in tables:
        for column in {f"{name}_name" for name in OTHER_CLASSES} & {*table.column_names}:
            named |= {*_texts(table, column)} - {None}
    return [*names, *sorted(named - {*names})]


def _texts(table: pa.Table, column: str) -> Texts:
    return np.array(table[column].cast(pa.string()).to_pylist(), dtype=object)


def _numbers(table: pa.Table, column: str) -> Numbers:
    numbers: Numbers = table[column].cast(pa.float64()).to_numpy()
    return numbers


def consensus_of(inputs: Sequence[Path]) -> ScoreFile:
    """The consensus of at least two inputs, all of them features or all of them score files."""
    are_features = [path.is_dir() or is_array_file(path) for path in inputs]
    if all(are_features):
        stores = {str(path): open_features(path) for path in inputs}
        return density_consensus(stores, FitOptions())
    if any(are_features):
        features = inputs[are_features.index(True)]
        scores = inputs[are_features.index(False)]
        raise ScoreFileError(
            f"{features} holds features and {scores} does not",
            "give the features of every backbone, or the score file of every one",
        )
    return rank_consensus({str(path): read_scores(path) for path in inputs})
