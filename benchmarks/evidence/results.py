"""The results of the cells, as the tables ask for them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evidence.cells import STATISTIC, read_result
from benchmarks.evidence.data import BACKBONES
from benchmarks.evidence.label_sets import LabelSet
from benchmarks.evidence.names import COLUMNS, SUSPICION
from benchmarks.evidence.scored import CONSENSUS, cell_name


def statistic_of(column: str, *cells: dict[str, Any] | None) -> dict[str, str]:
    """Which statistic of `suspicion` a number goes by: nothing for other columns."""
    if column != SUSPICION:
        return {}
    recorded = all(cell and cell.get("statistic") == STATISTIC for cell in cells)
    return {"suspicion_statistic": "present" if recorded else "former"}


@dataclass(frozen=True)
class Results:
    """Results of the cells that have run.

    Attributes:
        folder: Folder of the study.
    """

    folder: Path

    def cell(self, name: str) -> dict[str, Any] | None:
        """Values of a cell; None where it has not run."""
        return read_result(self.folder, name)

    def method(self, backbone: str, labels: LabelSet, column: str) -> dict[str, Any] | None:
        """Values of the cell that has a column; None where it has not run."""
        return self.cell(cell_name(backbone, labels, COLUMNS[column]))

    def column(
        self, backbone: str, labels: LabelSet, column: str, target: str
    ) -> dict[str, Any] | None:
        """What a column says about `wrong` labels or `people`; None where that is unknown."""
        found = self.method(backbone, labels, column)
        if found is None:
            return None
        values: dict[str, Any] | None = found["columns"].get(column, {}).get(target)
        return values

    def statistic(self, backbone: str, labels: LabelSet, column: str) -> dict[str, str]:
        """Which statistic of `suspicion` a column goes by; a consensus by those of its members."""
        members = BACKBONES if backbone == CONSENSUS else (backbone,)
        cells = [self.cell(cell_name(each, labels, SUSPICION)) for each in members]
        return statistic_of(column, *cells)

    def all_cells(self) -> list[dict[str, Any]]:
        """Values of all cells that have run."""
        files = (self.folder / "cells").rglob("*.json")
        names = (str(file.relative_to(self.folder / "cells"))[: -len(".json")] for file in files)
        return [self.cell(name) or {} for name in names]

    def total_hours(self) -> float:
        """Processor hours of all cells that have run."""
        return sum(cell["cell_seconds"] for cell in self.all_cells()) / 3600

    def machines(self) -> str:
        """What the cells ran on."""
        return "; ".join(sorted({cell["machine"] for cell in self.all_cells()}))
