"""Compares scores with human votes, flags, other labels or errors of a model.

The column that scores are compared with is joined by sample id and converted to numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.errors import AuditError
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.scores.agreement import (
    ErrorRateByBin,
    FlagAgreement,
    RankAgreement,
    error_rate_by_bin,
    flag_agreement,
    rank_agreement,
)
from difficulty_service.scores.compared_values import (
    choose_kind,
    disagreement,
    label_numbers,
    match_ids,
    rank_values,
    require_other_columns,
)
from difficulty_service.scores.score_columns import require_columns

Numbers = NDArray[np.float64]
Agreement = RankAgreement | FlagAgreement | ErrorRateByBin


@dataclass(frozen=True)
class AuditOptions:
    """Options of a comparison; the kind is of `COMPARISONS`, or chosen by the column's type."""

    join: str
    column: str
    kind: str | None = None
    num_bins: int = 20
    score_column: str = "rmd"


@dataclass(frozen=True)
class Audit:
    """The result of a comparison, with the numbers of samples that were excluded.

    The options have the kind that was chosen, and `meaning` is how the column became numbers.
    `num_without_score` counts joined samples, `num_without_value` those of them with a score.
    """

    options: AuditOptions
    meaning: str
    num_scores: int
    num_rows: int
    num_joined: int
    num_without_score: int
    num_without_value: int
    agreement: Agreement

    def lines(self) -> list[str]:
        """The result in words."""
        options = self.options
        excluded = {
            "samples have no row in the other table": self.num_scores - self.num_joined,
            "rows of the other table have no sample": self.num_rows - self.num_joined,
            "samples have no score": self.num_without_score,
            f"samples have no value in {options.column}": self.num_without_value,
        }
        return [
            f"{options.score_column} against {options.column} ({self.meaning}), {options.kind}",
            *self.agreement.lines(),
            *(f"left out: {count:,} {what}" for what, count in excluded.items() if count),
        ]


def audit(score_table: pa.Table, against: pa.Table, options: AuditOptions) -> Audit:
    """Joins scores with another table by sample id and compares them with one of its columns.

    The scores have the columns sample_id, label, label_name and that of the score.

    Raises:
        AuditError: A column is missing or has the wrong type, an id occurs twice, no ids match, or
            the remaining samples cannot be compared.
    """
    score_columns = ("sample_id", "label", "label_name", options.score_column)
    require_columns(score_columns, score_table.column_names, "the score file", AuditError)
    require_other_columns("the other table", against.column_names, (options.join, options.column))
    rows = match_ids(score_table["sample_id"], against[options.join], options.join)
    joined = score_table.select(score_columns).filter(rows.is_valid())
    column = plain_column(against[options.column].take(rows.drop_null()))
    scores = joined[options.score_column].cast(pa.float64()).to_numpy()
    labels = joined["label"].to_numpy()
    names = plain_column(joined["label_name"])
    kind = options.kind or choose_kind(column, label_numbers(labels, names))
    if kind not in COMPARISONS:
        raise AuditError(
            f"kind {kind!r} is unknown", f"choose one of {', '.join(COMPARISONS)}", parameter="kind"
        )
    values = (
        rank_values(column, options.column)
        if kind == "rank"
        else disagreement(column, labels, names, options.column)
    )
    has_score, has_value = ~np.isnan(scores), ~np.isnan(values.numbers)
    used = has_score & has_value
    return Audit(
        options=replace(options, kind=kind),
        meaning=values.meaning,
        num_scores=len(score_table),
        num_rows=len(against),
        num_joined=len(joined),
        num_without_score=int((~has_score).sum()),
        num_without_value=int((has_score & ~has_value).sum()),
        agreement=COMPARISONS[kind](scores[used], values.numbers[used], options.num_bins),
    )


COMPARISONS: dict[str, Callable[[Numbers, Numbers, int], Agreement]] = {
    "rank": lambda scores, values, _: rank_agreement(scores, values),
    "flag": lambda scores, flags, _: flag_agreement(scores, flags),
    "error-rate": error_rate_by_bin,
}
