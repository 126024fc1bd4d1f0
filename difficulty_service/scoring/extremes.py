"""The hardest, the easiest and the most doubtful samples, picked while the scores pass by."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.tables import to_numpy
from difficulty_service.marks.record import unverified
from difficulty_service.scores.file import SCHEMA
from difficulty_service.scores.tiers import Evidence

OTHER_CLASS: Mapping[Evidence, str] = {
    "label_margin": "nearest_label_name",
    "suspicion": "suggested_label_name",
}
"""The column with the name of the class that a sample looks like."""


class TopRows:
    """The rows with the largest or smallest values of a column, of all rows seen so far.

    Rows without a value are left out; `rows` has the largest value first.
    """

    def __init__(
        self, count: int, column: str, shown: Sequence[str], *, largest: bool = True
    ) -> None:
        self._count = count
        self._column = column
        self._order = "descending" if largest else "ascending"
        schema = pa.schema([SCHEMA.field(name) for name in (*shown, column)])
        self.rows: pa.Table = pa.Table.from_batches([], schema)

    def update(self, rows: pa.Table) -> None:
        """Takes more rows into account."""
        known = rows.select(self.rows.column_names).filter(rows[self._column].is_valid())
        candidates = pa.concat_tables([self.rows, known.cast(self.rows.schema)])
        candidates = candidates.unify_dictionaries().combine_chunks()
        chosen = pc.select_k_unstable(candidates, self._count, [(self._column, self._order)])
        self.rows = candidates.take(chosen).sort_by([(self._column, "descending")])


class Extremes:
    """The samples at the ends of a score file, without those that a person has verified.

    Without classes to compare, no label is doubtful.
    """

    def __init__(
        self, count: int, evidence: Evidence = "label_margin", measure: str = "rmd"
    ) -> None:
        self.evidence, self.measure = evidence, measure
        shown = ("sample_id", "label_name")
        self._hardest = TopRows(count, measure, shown)
        self._easiest = TopRows(count, measure, shown, largest=False)
        self._doubtful = TopRows(count, evidence, (*shown, OTHER_CLASS[evidence]))

    @property
    def hardest(self) -> pa.Table:
        """Columns sample_id, label_name and the measure of the hardest samples, hard to easy."""
        return self._hardest.rows

    @property
    def easiest(self) -> pa.Table:
        """The same of the easiest samples, also from hard to easy."""
        return self._easiest.rows

    @property
    def doubtful(self) -> pa.Table:
        """Samples whose evidence for another class is above 0, the clearest first."""
        values = to_numpy(self._doubtful.rows[self.evidence].combine_chunks())
        return self._doubtful.rows[: int((values > 0).sum())]

    def update(self, rows: pa.Table) -> None:
        """Takes more rows into account."""
        rows = unverified(rows)
        for each in (self._hardest, self._easiest):
            each.update(rows)
        if self.evidence in rows.column_names:
            self._doubtful.update(rows)
