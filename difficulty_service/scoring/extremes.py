"""The hardest and the easiest samples, picked while the scores pass by."""

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.score_file import SCHEMA

COLUMNS = ["sample_id", "label_name", "rmd"]

EMPTY = pa.Table.from_batches(
    [], pa.schema([pa.field(name, SCHEMA.field(name).type) for name in COLUMNS])
)


class Extremes:
    """The hardest and the easiest of all samples seen so far that have a score.

    Args:
        count: Number of samples to keep at each end.

    Attributes:
        hardest: Columns sample_id, label_name and rmd, from hard to easy.
        easiest: The same of the easiest samples, also from hard to easy.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.hardest: pa.Table = EMPTY
        self.easiest: pa.Table = EMPTY

    def update(self, rows: pa.Table) -> None:
        """Takes more rows into account."""
        scored = rows.select(COLUMNS)
        scored = scored.filter(scored["rmd"].is_valid())
        self.hardest = self._select(self.hardest, scored, "descending")
        self.easiest = self._select(self.easiest, scored, "ascending")

    def _select(self, kept: pa.Table, rows: pa.Table, order: str) -> pa.Table:
        candidates = pa.concat_tables([kept, rows]).unify_dictionaries().combine_chunks()
        chosen = pc.select_k_unstable(candidates, self._count, [("rmd", order)])
        return candidates.take(chosen).sort_by([("rmd", "descending")])
