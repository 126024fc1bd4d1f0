"""Tables of the study: rows of text that CSV files keep and pages show."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from difficulty_service.base.files import replacing

Row = Mapping[str, str]
"""Texts by the names of columns; one that is absent is empty."""

NONE = "-"


def write_rows(file: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Writes a CSV file; without rows it has the header alone."""
    with replacing(file) as temporary, temporary.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def interval(values: Mapping[str, float]) -> dict[str, str]:
    """A rank correlation with the ends of its 95 % interval."""
    ends = {"spearman": "spearman", "spearman_low": "low", "spearman_high": "high"}
    return {column: f"{values[key]:.3f}" for column, key in ends.items()}


def unsigned(value: float, digits: int) -> str:
    """A number without the sign of a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def bold(texts: Sequence[str], best: str | None) -> list[str]:
    """The texts, bold where they are the best one."""
    return [f"**{text}**" if text == best else text for text in texts]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    first, *others = (f"| {' | '.join(line)} |" for line in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *others]) + "\n"
