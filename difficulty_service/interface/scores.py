"""Scores in memory: one row per sample, with the columns of a score file."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.tables import count_positive
from difficulty_service.features.errors_file import BadImage, errors_table
from difficulty_service.score_columns import require_columns
from difficulty_service.scores.extremes import OTHER_CLASS
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.label_counts import WRONG, Evidence, evidence_of
from difficulty_service.scores.marks import unverified
from difficulty_service.scores.provenance import Provenance

if TYPE_CHECKING:
    import pandas as pd

    class Column(pa.ChunkedArray):  # type: ignore[misc] # pyarrow ships no types
        """A column of the scores; what is not declared here is as in pyarrow."""

        def __len__(self) -> int: ...

        def to_numpy(self) -> NDArray[Any]:
            """The values as an array of shape (samples,)."""

        def to_pylist(self) -> list[Any]:
            """The values as a list."""

else:
    Column = pa.ChunkedArray

SHOWN = 5
"""Number of samples in each list that a notebook shows."""

ROWS_PER_GROUP = 1 << 16
"""Rows of a row group of a score file."""


class Scores:
    """Scores of the samples of a dataset; larger is harder.

    Args:
        contents: Contents of a score file.
        bad_images: Images that could not be read.

    Attributes:
        table: One row per sample, in the order of the samples, with those columns of a score file
            that were computed.
        provenance: Where the scores come from: dataset, backbone, fit, counts.
        warnings: Warnings for the reader of the scores, one sentence each.
        bad_images: Columns `sample_id` and `reason`: images that could not be read; empty where
            features were scored or a file was opened.
    """

    def __init__(self, contents: ScoreFile, bad_images: Sequence[BadImage] = ()) -> None:
        self.table: pa.Table = contents.table
        self.provenance: Provenance = contents.provenance
        self.warnings: tuple[str, ...] = contents.provenance.warnings
        self.bad_images: pa.Table = errors_table(bad_images)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, column: str) -> Column:
        """One column, such as `rmd`.

        Raises:
            ScoreFileError: It is absent; the remedy is what computes it.
        """
        require_columns([column], self.table.column_names, "the table of scores")
        values: Column = self.table.column(column)
        return values

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """The table."""
        return self.table

    def to_pandas(self) -> "pd.DataFrame":
        """The table as a DataFrame; pandas must be installed."""
        return self.table.to_pandas()

    def hardest(self, n: int = 20) -> pa.Table:
        """The `n` samples with the largest `rmd`, hardest first, without those that are marked.

        Raises:
            ScoreFileError: The scores have no `rmd`, as those of a trained classifier.
        """
        return self._largest("rmd", n)

    def doubtful(self, n: int = 20) -> pa.Table:
        """The `n` samples with the most doubtful labels, most doubtful first, without marked ones.

        They are those with the largest `suspicion` where one is above zero, and else with the
        largest `label_margin`. Above zero, another class (`suggested_label`, `nearest_label`) fits
        better than the label.
        """
        return self._largest(self._evidence, n)

    @property
    def _evidence(self) -> Evidence:
        """The column by which labels are doubted."""
        if "suspicion" not in self.table.column_names:
            return "label_margin"
        return evidence_of(count_positive(self.table["suspicion"]))

    def save(self, path: str | Path) -> Path:
        """Writes a score file, which the commands and the trainer read, and returns its path.

        The file appears whole or not at all; an existing one is replaced.
        """
        path = Path(path)
        groups = range(0, max(1, len(self)), ROWS_PER_GROUP)
        parts = (self.table.slice(start, ROWS_PER_GROUP) for start in groups)
        write_scores(path, parts, self.provenance)
        return path

    def _largest(self, column: str, count: int) -> pa.Table:
        table = unverified(self.table.filter(self[column].is_valid()))
        order = pc.sort_indices(table, [(column, "descending"), ("sample_id", "ascending")])
        return table.take(order[: max(0, count)])

    def __repr__(self) -> str:
        return f"<Scores of {len(self):,} samples, {len(self.warnings)} warnings>"

    def _repr_html_(self) -> str:
        doubtful = self.doubtful(SHOWN)
        doubtful = doubtful.filter(pc.greater(doubtful[self._evidence], 0))
        by_suspicion = self._evidence == "suspicion"
        title = f"labels {WRONG}" if by_suspicion else "look more like another class"
        lists = {title: doubtful}
        columns = ["sample_id", "label_name", OTHER_CLASS[self._evidence], self._evidence]
        if "rmd" in self.table.column_names:
            columns.append("rmd")
            lists["hardest"] = self.hardest(SHOWN)
        tables = (
            _html_table(title, rows.select(columns)) for title, rows in lists.items() if len(rows)
        )
        notes = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.warnings)
        return (
            f"<p>Scores of {len(self):,} samples; larger is harder.</p>"
            f"{''.join(tables)}{f'<ul>{notes}</ul>' if notes else ''}"
        )


def _html_table(title: str, rows: pa.Table) -> str:
    head = "".join(f"<th>{name}</th>" for name in rows.column_names)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row.values())}</tr>"
        for row in rows.to_pylist()
    )
    caption = f"<caption>{title}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return html.escape(f"{value:.2f}" if isinstance(value, float) else str(value))


def open_scores(path: str | Path) -> Scores:
    """Opens a score file that `Scores.save` or a command wrote.

    Raises:
        ScoreFileError: The file is missing, is not a score file, or has an unknown version.
    """
    return Scores(read_scores(Path(path)))
