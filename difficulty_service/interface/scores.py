"""Scores in memory: one row per sample, with the columns of a score file."""

import html
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.base.tables import count_positive
from difficulty_service.base.wording import count_of, list_names
from difficulty_service.features.errors_file import BadImage, errors_table
from difficulty_service.interface.selection import Rows, column_array, select_rows
from difficulty_service.marks.record import unverified
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import COLUMNS, measure_of, require_columns
from difficulty_service.scores.tiers import PROBABLY_WRONG, Evidence, evidence_of
from difficulty_service.scoring.extremes import OTHER_CLASS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from difficulty_service.interface.image_sources import LabelledImages
    from difficulty_service.interface.plots import PlotKind
    from difficulty_service.interface.review_widget import ReviewWidget
    from difficulty_service.interface.tables import Frame
    from difficulty_service.reports.sections import Order

    class ScoreColumn(pa.ChunkedArray):  # type: ignore[misc] # pyarrow ships no types
        """A column of the scores; what is not declared here is as in pyarrow."""

        def __len__(self) -> int: ...

        def to_numpy(self) -> NDArray[Any]:
            """The values as an array of shape (samples,)."""

        def to_pylist(self) -> list[Any]:
            """The values as a list."""

else:
    ScoreColumn = pa.ChunkedArray

SHOWN = 5
"""Number of samples in each list that a notebook shows."""

ROWS_PER_GROUP = 1 << 16
"""Rows of a row group of a score file."""

NAMED = 10
"""Number of columns that a sentence names."""

CALLER = 3
"""Frames between a warning and the caller of the interface."""


def warn(sentences: Sequence[str]) -> None:
    """Issues each sentence as a warning of Python, at the line that called the interface."""
    for sentence in sentences:
        warnings.warn(sentence, UserWarning, stacklevel=CALLER)


class Scores:
    """Scores of the samples of a dataset; larger is harder.

    Each column is an attribute, such as `scores.rmd`: a NumPy array in which a missing number is
    NaN. `scores["rmd"]` is the same as an Arrow column. A slice, a mask, positions or a list of
    sample ids give the scores of these samples: `scores[scores.rmd > 3]`.

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
        tags: A row for each tag, as `TagScores` has it; None unless tags have been judged.
    """

    def __init__(self, contents: ScoreFile, bad_images: Sequence[BadImage] = ()) -> None:
        self.table: pa.Table = contents.table
        self.provenance: Provenance = contents.provenance
        self.warnings: tuple[str, ...] = contents.provenance.warnings
        self.bad_images: pa.Table = errors_table(bad_images)
        self.tags: pa.Table | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, key: str) -> ScoreColumn: ...

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: Rows) -> "Scores": ...

    def __getitem__(self, key: "str | int | Rows") -> "ScoreColumn | dict[str, Any] | Scores":
        """One column, such as `rmd`; the row at a position; or the scores of some samples.

        Args:
            key: Name of a column, a position, or a slice, mask, list of positions or of sample ids.

        Raises:
            ScoreFileError: A column is absent, and the remedy is what computes it; or the rows are
                none of the samples.
            IndexError: A position is beyond the samples.
        """
        if isinstance(key, str):
            require_columns([key], self.table.column_names, "the table of scores")
            values: ScoreColumn = self.table.column(key)
            return values
        if isinstance(key, int | np.integer):
            row: dict[str, Any] = self.table.slice(range(len(self))[key], 1).to_pylist()[0]
            return row
        return self._with(select_rows(self.table, key))

    def __getattr__(self, name: str) -> NDArray[Any]:
        # Other names with an underscore are what notebooks and `copy` look for.
        if name.startswith("_") or name == "table":
            raise AttributeError(name)
        try:
            return column_array(self[name])
        except ScoreFileError as error:
            raise AttributeError(str(error)) from None

    @property
    def columns(self) -> dict[str, str]:
        """What each column of the table is, by name; empty for columns that joins added."""
        return {
            name: kind.sentence if (kind := COLUMNS.get(name)) else ""
            for name in self.table.column_names
        }

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *filter(str.isidentifier, self.table.column_names)})

    def _ipython_key_completions_(self) -> list[str]:
        names: list[str] = self.table.column_names
        return names

    def _with(self, table: pa.Table) -> "Scores":
        """The same scores with another table."""
        scores = Scores(ScoreFile(table, self.provenance))
        scores.warnings, scores.bad_images = self.warnings, self.bad_images
        return scores

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

    def join(self, frame: "Frame", on: str | None = None) -> "Scores":
        """The scores with the columns of another table, in the order of the scores.

        A sample without a row there has no values; a warning counts such samples, and rows that
        are of no sample. `review` filters by these columns.

        Args:
            frame: A DataFrame of pandas or polars, an Arrow table, a relation of DuckDB, a Dataset
                of Hugging Face, or a mapping of columns, such as `{"sample_id": ids, "camera":
                cameras}`.
            on: Its column with the ids of the samples; by default `sample_id`, or the index of a
                DataFrame of pandas that has no such column.

        Raises:
            DatasetError: The columns cannot be read, or there is none of ids.
            AuditError: An id occurs more than once, or none of them is of a sample.
        """
        from difficulty_service.interface.joining import join_columns

        table, notes = join_columns(self.table, frame, on)
        warn(notes)
        return self._with(table)

    def plot(
        self,
        kind: "PlotKind" = "histogram",
        *,
        ax: "Axes | None" = None,
        n: int | None = None,
        order: "Order | None" = None,
        images: "LabelledImages | None" = None,
    ) -> "Axes":
        """Draws the scores with Matplotlib, in the colours of the report.

        Args:
            kind: `histogram` of the difficulty, with the tiers of the labels; `classes`: the
                difficulty of each class, the hardest first; `pairs`: which class is taken for
                which, the most samples first; `sheet`: pictures of the samples to check.
            ax: Axes to draw into; new ones by default, whose figure is `.figure`.
            n: Largest number of classes, pairs or pictures.
            order: Which samples a sheet shows: the most `doubtful`, the `hardest`, or a `random`
                choice; by default the doubtful ones, or the hardest where no label is doubtful.
            images: The images of a sheet, as for `score_dataset`; by default the dataset that the
                scores name.

        Raises:
            ConfigError: The kind is unknown, or has no such option.
            ReportError: There is nothing to draw.
            MissingPackage: Matplotlib is not installed; the extra `notebook` brings it.
        """
        from difficulty_service.interface.plots import PlotOptions, draw

        contents = ScoreFile(self.table, self.provenance)
        axes, notes = draw(contents, kind, PlotOptions(n, order, images), ax)
        warn(notes)
        return axes

    def review(
        self,
        *,
        images: "LabelledImages | None" = None,
        order: "Order" = "doubtful",
        max_mb: float | None = None,
        height: int = 760,
    ) -> "ReviewWidget":
        """Shows the samples to check in a notebook, to be marked by key or mouse.

        `marks` of what it returns holds the decisions, and is what `score` takes as `marks`.

        Args:
            images: The images, as for `score_dataset`; by default the dataset that the scores name,
                without pictures where that is gone.
            order: Which labels to check: the most `doubtful`, those of the `hardest` images, or a
                `random` choice, which tells how many labels are wrong.
            max_mb: Largest size of the page in megabytes; pictures are left out beyond it. As for
                `report` by default.
            height: Height of the widget in pixels.

        Raises:
            ReportError: There are no scores to show.
            DatasetError: The given images cannot be read.
            MissingPackage: anywidget is not installed; the extra `notebook` brings it.
        """
        from difficulty_service.interface.review_widget import show_review

        contents = ScoreFile(self.table, self.provenance)
        widget, notes = show_review(contents, images, order, max_mb, height)
        warn(notes)
        return widget

    @property
    def _evidence(self) -> Evidence:
        """The column by which labels are doubted."""
        if "suspicion" not in self.table.column_names:
            return "label_margin"
        return evidence_of(count_positive(self.table["suspicion"]))

    def save(self, path: str | Path) -> Path:
        """Writes a score file, which the commands and the trainer read, and returns its path.

        The file appears whole or not at all; an existing one is replaced. Columns that were joined
        are not in it.
        """
        path = Path(path)
        joined = [name for name in self.table.column_names if name not in COLUMNS]
        if joined:
            number, names = count_of(len(joined), "joined column"), list_names(joined, NAMED)
            warn([f"{number} of the scores left out, as score files have no such: {names}"])
        table = self.table.drop_columns(joined)
        groups = range(0, max(1, len(self)), ROWS_PER_GROUP)
        parts = (table.slice(start, ROWS_PER_GROUP) for start in groups)
        write_scores(path, parts, self.provenance)
        return path

    def _largest(self, column: str, count: int) -> pa.Table:
        table = unverified(self.table.filter(self[column].is_valid()))
        order = pc.sort_indices(table, [(column, "descending"), ("sample_id", "ascending")])
        return table.take(order[: max(0, count)])

    def __repr__(self) -> str:
        return f"<Scores of {len(self):,} samples, {len(self.warnings)} warnings>"

    def _repr_html_(self) -> str:
        measure = measure_of(self.table.column_names)
        lists, columns = {}, ["sample_id", "label_name"]
        if "label_margin" in self.table.column_names:
            doubtful = self.doubtful(SHOWN)
            by_suspicion = self._evidence == "suspicion"
            title = f"labels {PROBABLY_WRONG}" if by_suspicion else "look more like another class"
            lists[title] = doubtful.filter(pc.greater(doubtful[self._evidence], 0))
            columns += [OTHER_CLASS[self._evidence], self._evidence]
        columns.append(measure)
        title = "most unusual" if measure == "md_agnostic" else "hardest"
        lists[title] = self._largest(measure, SHOWN)
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


def contents_of(scores: Scores | str | Path, columns: Sequence[str] | None = None) -> ScoreFile:
    """What scores hold, or some columns of a score file."""
    if isinstance(scores, Scores):
        return ScoreFile(scores.table, scores.provenance)
    return read_scores(Path(scores), columns)
