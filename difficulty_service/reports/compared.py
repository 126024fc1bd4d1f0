"""Another column by twentieths of difficulty: do people find the same images hard?

The comparison of two score files as a page of the same kind as the report.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.errors import AuditError, ReportError, Setting
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.scores.agreement import (
    error_rate_by_bin,
    flag_agreement,
    rank_agreement,
)
from difficulty_service.scores.compared_values import (
    choose_kind,
    disagreement,
    is_list,
    label_numbers,
    list_matrix,
    match_ids,
    rank_values,
)
from difficulty_service.scores.samples import ScoredSamples

BINS = 20


@dataclass(frozen=True)
class ComparedColumn:
    """A column of the dataset beside the difficulty.

    Attributes:
        means: Mean in each bin of equal size, the easiest samples first. Shape (bins,).
    """

    name: str
    meaning: str
    means: NDArray[np.float64]
    is_share: bool
    agreement: str
    num_samples: int


def compare(samples: ScoredSamples, table: pa.Table, name: str) -> ComparedColumn:
    """Means of a column from the easiest samples to the hardest."""
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
    column = plain_column(table["value"].take(rows.drop_null()))
    labels = samples.labels[joined]
    names = pa.chunked_array([[samples.name_of(label) for label in labels.tolist()]])
    kind = choose_kind(column, label_numbers(labels, names))
    if kind == "rank":
        ranked = rank_values(column, name)
        shown, meaning, is_share = ranked.numbers, f"Mean of {name}", False
        if is_list(column.type):
            shown, meaning, is_share = _votes_elsewhere(column, labels, names, name)
    else:
        ranked = disagreement(column, labels, names, name)
        shown, is_share = ranked.numbers, True
        meaning = f"Share of samples {ranked.meaning.replace('it ', f'{name} ', 1)}"
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
        f"{flags.num_flagged:,} of {flags.num_samples:,} samples. Such a sample is harder than any "
        f"other with a probability of {100 * flags.auroc:.0f}\N{NO-BREAK SPACE}% (AUROC)."
    )


def _votes_elsewhere(
    column: pa.ChunkedArray, labels: NDArray[np.int64], names: pa.ChunkedArray, name: str
) -> tuple[NDArray[np.float64], str, bool]:
    """Share of the votes or probabilities that are for another class than the label."""
    votes = list_matrix(column, name)
    places = label_numbers(labels, names, votes.shape[1])
    if votes.shape[1] <= places.max():
        return rank_values(column, name).numbers, f"Mean entropy of {name} in nats", False
    with np.errstate(invalid="ignore"):
        shares = votes / votes.sum(axis=1, keepdims=True)
    own = shares[np.arange(len(places)), places]
    return 1 - own, f"Share of {name} for another class than the label", True


def bar_heights(compared: ComparedColumn) -> Sequence[float]:
    """Height of each bin's bar as a share of the chart, from 0 up."""
    low = min(0.0, float(compared.means.min()))
    reach = max(float(compared.means.max()) - low, 1e-300)
    return [round(float((mean - low) / reach), 4) for mean in compared.means]
