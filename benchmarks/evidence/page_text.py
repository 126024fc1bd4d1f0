"""How the page asks for numbers of the tables, and shows some of their rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evidence.names import label
from benchmarks.evidence.tables import Row, bold, markdown, read_rows

NOT_RUN = "not run"
FORMER = "former"


@dataclass(frozen=True)
class Tables:
    """The tables of the study.

    Attributes:
        folder: Folder of the CSV files.
    """

    folder: Path

    def rows(self, name: str, **values: str) -> list[dict[str, str]]:
        """The rows of a table that have these values; none where it was not written."""
        file = self.folder / f"{name}.csv"
        found = read_rows(file) if file.exists() else []
        return [row for row in found if all(row[key] == each for key, each in values.items())]

    def text(self, name: str, column: str, **values: str) -> str:
        """A text of the only row that has these values."""
        found = self.rows(name, **values)
        return found[0][column] if found else NOT_RUN


@dataclass(frozen=True)
class Column:
    """A column of numbers by score, of which the largest is the best.

    Attributes:
        title: What the page names it.
        rows: The rows of all scores.
        key: Column of the table.
    """

    title: str
    rows: Sequence[Row]
    key: str

    def texts(self) -> dict[str, str]:
        """Numbers by score."""
        return {row["score"]: row[self.key] for row in self.rows if row[self.key]}

    def best(self) -> str | None:
        """The largest number, of all scores."""
        return max(self.texts().values(), key=float, default=None)


def of_scores(scores: Sequence[str], columns: Sequence[Column], error: str | None = None) -> str:
    """A table of some scores and of every score that is the best of a column.

    Args:
        scores: Scores to show in any case.
        columns: Columns, whose best number of all scores is bold.
        error: Column of the tables with half-widths of intervals, the widest of which are a row.
    """
    best = {
        score for each in columns for score, text in each.texts().items() if text == each.best()
    }
    shown = [*scores, *sorted(best - set(scores))]
    texts = [bold([each.texts().get(s, NOT_RUN) for s in shown], each.best()) for each in columns]
    rows = [[label(score), *cells] for score, *cells in zip(shown, *texts, strict=True)]
    if error:
        widest = [
            max((row[error] for row in each.rows if row["score"] in shown), key=float, default="-")
            for each in columns
        ]
        rows.append(["95 % interval: ± at most", *widest])
    return markdown(("score", *(each.title for each in columns)), rows)


def signed(text: str) -> str:
    """A difference with its sign."""
    return text if text.startswith("-") or text == NOT_RUN else f"+{text}"


def grouped(text: str) -> str:
    """A count with commas."""
    return f"{int(text):,}" if text.isdecimal() else text


def count(rows: Sequence[Row], condition: Callable[[Row], bool]) -> str:
    """How many of some rows fulfil a condition."""
    return f"{sum(map(condition, rows))} of {len(rows)}"


def total(rows: Sequence[Mapping[str, str]], key: str = "sets") -> int:
    """A sum over rows."""
    return sum(int(row[key]) for row in rows)
