"""Why a dataset is not read as the scenes are: what each program does on purpose or leaves out."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.formats.table import TableRow


@dataclass(frozen=True)
class Explanation:
    """A reason for some differences of some datasets.

    Attributes:
        names: Pattern of the names of the datasets.
        differences: Patterns of the differences.
    """

    names: str
    differences: tuple[str, ...]
    sentence: str

    def holds(self, row: TableRow, difference: str) -> bool:
        """Whether it is the reason for a difference."""
        return fnmatchcase(row.name, self.names) and any(
            fnmatchcase(difference, pattern) for pattern in self.differences
        )


EXPLANATIONS: tuple[Explanation, ...] = ()


def explain(row: TableRow, difference: str) -> str | None:
    """The sentence for a difference; None where there is none."""
    return next((each.sentence for each in EXPLANATIONS if each.holds(row, difference)), None)


def stale(rows: Sequence[TableRow]) -> list[str]:
    """Explanations of differences that no dataset has."""
    return [
        f"{each.names}: {each.sentence}"
        for each in EXPLANATIONS
        if not any(each.holds(row, one) for row in rows for one in row.differences)
    ]
