"""Do the scores mean anything? Compared with what people, other labels or models say."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.audit.agreement import (
    ErrorRateByBin,
    FlagAgreement,
    RankAgreement,
    error_rate_by_bin,
    flag_agreement,
    rank_agreement,
)
from difficulty_service.audit.columns import (
    choose_kind,
    disagreement,
    match_ids,
    rank_values,
    require_columns,
)
from difficulty_service.errors import AuditError

Numbers = NDArray[np.float64]
Agreement = RankAgreement | FlagAgreement | ErrorRateByBin


@dataclass(frozen=True)
class AuditOptions:
    """What scores are compared with, and how.

    Attributes:
        join: Column whose text is the sample id.
        column: Column to compare with.
        kind: `rank`, `flag` or `error-rate`; None chooses by the column's type.
        num_bins: Bins of an error rate.
        score_column: Which score to judge.
    """

    join: str
    column: str
    kind: str | None = None
    num_bins: int = 20
    score_column: str = "rmd"


@dataclass(frozen=True)
class Audit:
    """What came out, and which samples took no part.

    Attributes:
        options: What was asked, with the kind that was chosen.
        meaning: How the column became numbers, in words.
        num_scores: Rows of the score file.
        num_rows: Rows of the other table.
        num_joined: Samples in both.
        num_without_score: Of those, samples whose score is null.
        num_without_value: Of the others, samples about which the column says nothing.
        agreement: The comparison.
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
        """The same in words."""
        asked = self.options
        left_out = {
            "samples have no row in the other table": self.num_scores - self.num_joined,
            "rows of the other table have no sample": self.num_rows - self.num_joined,
            "samples have no score": self.num_without_score,
            f"samples have no value in {asked.column}": self.num_without_value,
        }
        return [
            f"{asked.score_column} against {asked.column} ({self.meaning}), {asked.kind}",
            *self.agreement.lines(),
            *(f"left out: {count:,} {what}" for what, count in left_out.items() if count),
        ]


def audit(score_table: pa.Table, against: pa.Table, options: AuditOptions) -> Audit:
    """Joins scores with another table by sample id and compares them with one of its columns.

    Args:
        score_table: With sample_id, label, label_name and the score's column.
        against: With the columns that `options` names.
        options: What to compare.

    Raises:
        AuditError: A column is missing or of the wrong type, an id occurs twice, nothing fits
            together, or what is left cannot be compared.
    """
    score_columns = ("sample_id", "label", "label_name", options.score_column)
    require_columns("the score file", score_table.column_names, score_columns)
    require_columns("the other table", against.column_names, (options.join, options.column))
    rows = match_ids(score_table["sample_id"], against[options.join], options.join)
    joined = score_table.select(score_columns).filter(rows.is_valid())
    column = _plain(against[options.column].take(rows.drop_null()))
    scores = joined[options.score_column].cast(pa.float64()).to_numpy()
    labels = joined["label"].to_numpy()
    kind = options.kind or choose_kind(column, labels)
    if kind not in COMPARISONS:
        raise AuditError(f"kind {kind!r} is unknown; known are {', '.join(COMPARISONS)}")
    values = (
        rank_values(column, options.column)
        if kind == "rank"
        else disagreement(column, labels, _plain(joined["label_name"]), options.column)
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


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionary encoding."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


COMPARISONS: dict[str, Callable[[Numbers, Numbers, int], Agreement]] = {
    "rank": lambda scores, values, _: rank_agreement(scores, values),
    "flag": lambda scores, flags, _: flag_agreement(scores, flags),
    "error-rate": error_rate_by_bin,
}
