"""The counts of campaigns, in a file of which `docs/campaign.py` makes a table."""

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmarks.machine import machine
from difficulty_service.base.files import replacing
from tests.faults.strikes import KILLS, OTHERS
from tests.faults.submitted_jobs import Tally

KEY = ("database", "processes")


@dataclass(frozen=True)
class Row:
    """What a campaign has done so far.

    Attributes:
        processes: How they were started: forked from one that has loaded the program, or new.
        faults: Number of faults of each kind, by the name of its function.
    """

    database: Literal["SQLite", "PostgreSQL"]
    processes: Literal["forked", "new"]
    faults: Mapping[str, int]
    tally: Tally

    def values(self) -> dict[str, object]:
        """The cells of the row, by the names of their columns."""
        kinds = [fault.__name__ for fault in (*KILLS, *OTHERS)]
        return {
            "database": self.database,
            "processes": self.processes,
            **{kind: self.faults.get(kind, 0) for kind in kinds},
            **asdict(self.tally),
            "machine": machine(),
        }


def record(file: Path, row: Row) -> None:
    """Writes a row in place of the one of the same database and processes, if there is one."""
    added = row.values()
    rows: dict[tuple[object, ...], Mapping[str, object]] = {}
    if file.exists():
        with file.open(newline="") as text:
            rows = {tuple(each[name] for name in KEY): each for each in csv.DictReader(text)}
    rows[tuple(added[name] for name in KEY)] = added
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary, temporary.open("w", newline="") as text:
        writer = csv.DictWriter(text, list(added), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())
