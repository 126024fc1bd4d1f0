"""Another column by twentieths of difficulty: do people find the same images hard?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.audit.agreement import error_rate_by_bin, flag_agreement, rank_agreement
from difficulty_service.audit.columns import (
    choose_kind,
    disagreement,
    is_list,
    list_matrix,
    match_ids,
    rank_values,
)
from difficulty_service.audit.files import read_columns
from difficulty_service.datasets.sample import Dataset
from difficulty_service.errors import AuditError, DifficultyError, ReportError, Setting
from difficulty_service.reporting.samples import ScoredSamples

BINS = 20


@dataclass(frozen=True)
class ComparedColumn:
    """A column of the dataset beside the difficulty.

    Attributes:
        name: Name of the column.
        meaning: What the numbers are, as a phrase.
        means: Mean in each bin of equal size, the easiest samples first. Shape (bins,).
        is_share: Whether the numbers are shares between 0 and 1.
        agreement: How far the column agrees with the difficulty, as a sentence.
        num_samples: Number of samples with a score and a value.
    """

    name: str
    meaning: str
    means: NDArray[np.float64]
    is_share: bool
    agreement: str
    num_samples: int


def read_dataset_column(dataset: Dataset, column: str, id_column: str | None) -> pa.Table:
    """A column of a dataset that is a table, with the id of each sample.

    Args:
        dataset: The dataset.
        column: Name of the column.
        id_column: Column with the sample ids; None if every row is a sample.

    Returns:
        Columns `sample_id` and `value`.

    Raises:
        ReportError: The dataset is no table, lacks the column, or its rows have no known ids.
    """
    names = [column] if id_column is None else [column, id_column]
    try:
        table = read_columns(dataset.location, names, text_columns=names[1:])
    except DifficultyError as error:
        raise ReportError(
            f"the column {column!r} cannot be read from {dataset.location}: {error.problem}",
            "name a column of the score file or of a dataset that is a table",
            parameter="compare",
        ) from error
    if id_column is not None:
        return pa.table({"sample_id": table[id_column], "value": table[column]})
    if len(table) != len(dataset.sample_ids):
        raise ReportError(
            f"{len(table):,} rows of {dataset.location} are {len(dataset.sample_ids):,} samples, "
            f"so it is unknown which of them a value of {column!r} belongs to",
            "name the column with the sample ids as ",
            Setting("id_column"),
            parameter="compare",
        )
    return pa.table({"sample_id": pa.array(dataset.sample_ids), "value": table[column]})


def compare(samples: ScoredSamples, table: pa.Table, name: str) -> ComparedColumn:
    """Means of a column from the easiest samples to the hardest.

    Args:
        samples: The scores.
        table: Columns `sample_id` and `value`.
        name: Name of the column.

    Raises:
        ReportError: The column cannot be compared with the scores.
    """
    try:
        return _compare(samples, table, name)
    except AuditError as error:
        raise ReportError(
            f"the column {name!r} cannot be compared with the scores: {error.problem}",
            "choose another ",
            Setting("compare"),
            parameter="compare",
        ) from error


def _compare(samples: ScoredSamples, table: pa.Table, name: str) -> ComparedColumn:
    rows = match_ids(pa.chunked_array([samples.ids]), table["sample_id"], "sample_id")
    joined = np.flatnonzero(rows.is_valid().to_numpy(zero_copy_only=False))
    column = _plain(table["value"].take(rows.drop_null()))
    labels = samples.labels[joined]
    kind = choose_kind(column, labels)
    if kind == "rank":
        ranked = rank_values(column, name)
        shown, meaning, is_share = ranked.numbers, f"Mean of {name}", False
        if is_list(column.type):
            shown, meaning, is_share = _votes_elsewhere(column, labels, name)
    else:
        names = pa.chunked_array([[samples.name_of(label) for label in labels.tolist()]])
        ranked = disagreement(column, labels, names, name)
        shown, is_share = ranked.numbers, True
        meaning = f"Share of images {ranked.meaning.replace('it ', f'{name} ', 1)}"
    scores = samples.rmd[joined]
    used = ~(np.isnan(scores) | np.isnan(ranked.numbers) | np.isnan(shown))
    bins = error_rate_by_bin(scores[used], shown[used], max(1, min(BINS, int(used.sum()))))
    sentence = _agreement(kind, scores[used], ranked.numbers[used], ranked.meaning)
    return ComparedColumn(name, meaning, bins.error_rates, is_share, sentence, int(used.sum()))


def _agreement(
    kind: str, scores: NDArray[np.float64], numbers: NDArray[np.float64], meaning: str
) -> str:
    if kind == "rank":
        ranks = rank_agreement(scores, numbers)
        of = " of its entropy" if "entropy" in meaning else ""
        return (
            f"Rank correlation{of} with the difficulty: {ranks.spearman:.2f} "
            f"(95\N{NO-BREAK SPACE}% interval {ranks.low:.2f} to {ranks.high:.2f})."
        )
    flags = flag_agreement(scores, numbers)
    return (
        f"{flags.num_flagged:,} of {flags.num_samples:,} images. Such an image is harder than any "
        f"other with a probability of {100 * flags.auroc:.0f}\N{NO-BREAK SPACE}% (AUROC)."
    )


def _votes_elsewhere(
    column: pa.ChunkedArray, labels: NDArray[np.int64], name: str
) -> tuple[NDArray[np.float64], str, bool]:
    """Share of the votes or probabilities that are for another class than the label."""
    votes = list_matrix(column, name)
    if votes.shape[1] <= labels.max():
        return rank_values(column, name).numbers, f"Mean entropy of {name} in nats", False
    with np.errstate(invalid="ignore"):
        shares = votes / votes.sum(axis=1, keepdims=True)
    own = shares[np.arange(len(labels)), labels]
    return 1 - own, f"Share of {name} for another class than the label", True


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return pc.cast(column, column.type.value_type)
    return column


def bar_heights(compared: ComparedColumn) -> Sequence[float]:
    """Height of each bin's bar as a share of the chart, from 0 up."""
    low = min(0.0, float(compared.means.min()))
    reach = max(float(compared.means.max()) - low, 1e-300)
    return [round(float((mean - low) / reach), 4) for mean in compared.means]
