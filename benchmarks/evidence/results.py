"""The results of the cells, as the page asks for them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evidence.cells import read_result
from benchmarks.evidence.label_sets import LabelSet
from benchmarks.evidence.scored import cell_name

OURS = {
    "rmd": "rmd",
    "md": "rmd",
    "rmd_loo": "rmd",
    "label_margin": "rmd",
    "suspicion": "suspicion",
    "agree": "agree",
    "kmeans": "kmeans",
    "knn": "knn",
    "uncertainty": "uncertainty",
}
"""Score columns of this project, with the method whose cell has them."""

PEERS = {
    "cleanlab self_confidence": "cleanlab",
    "cleanlab normalized_margin": "cleanlab",
    "cleanlab confidence_weighted_entropy": "cleanlab",
    "AUM": "training",
    "EL2N": "training",
    "forgetting": "training",
    "kNN": "neighbours",
    "SimiFeat vote": "neighbours",
    "pytorch-ood Mahalanobis": "pytorch-ood",
    "pytorch-ood RMD": "pytorch-ood",
    "pytorch-ood RMD, own label": "pytorch-ood",
    "scikit-learn LDA": "lda",
    "scikit-learn LOF": "lof",
}
"""Score columns of peers, with the method whose cell has them."""

COLUMNS = OURS | PEERS


def label(column: str) -> str:
    """A column as tables name it: ours in code."""
    return f"`{column}`" if column in OURS else column


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
