"""Writes the tables of docs/papers.md from the list of the papers' results.

Run: python docs/papers.py
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.marked_parts import with_parts

PAGE = Path(__file__).with_suffix(".md")
RESULTS = Path(__file__).with_suffix("") / "results.csv"
PAPERS = ("difficulty", "focal", "adafocal", "gradients", "uncertainty")


@dataclass(frozen=True)
class Result:
    """A table or a figure of a paper, or a part of one.

    Attributes:
        paper: One of PAPERS.
        result: Its number in the paper, such as "table 2", or a name where it has none.
        part: Dataset or panel, where the result has several lines.
        shows: What it shows.
        command: What makes the same here; empty where nothing does.
        published: The paper's numbers, or what it concludes from a picture.
        ours: What was measured here; a dash where nothing was.
        row: Names of reduced forms in benchmarks/papers_quick, separated by commas.
        reason: Why there is no command; empty where there is one.
    """

    paper: str
    result: str
    part: str
    shows: str
    command: str
    published: str
    ours: str
    row: str
    reason: str

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of its reduced forms."""
        return tuple(self.row.split(", ")) if self.row else ()


def read_results() -> list[Result]:
    """All lines of the list, in its order."""
    with RESULTS.open(newline="") as file:
        return [Result(**row) for row in csv.DictReader(file)]


def page() -> str:
    """The whole page, with the tables written anew."""
    results = read_results()
    tables = {
        f"results-{paper}": _table([each for each in results if each.paper == paper])
        for paper in PAPERS
    }
    return with_parts(PAGE, "papers.py", tables)


def _table(results: Sequence[Result]) -> str:
    header = (
        "| result | shows | command | published | ours | row |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
    )
    return header + "".join(_line(each) for each in results)


def _line(result: Result) -> str:
    name = f"{result.result}, {result.part}" if result.part else result.result
    command = result.command or f"none: {result.reason}"
    cells = (name, result.shows, command, result.published, result.ours, result.row)
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
