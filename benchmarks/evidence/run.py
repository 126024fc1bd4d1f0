"""Runs the study and writes its tables, docs/evidence/*.csv, its figures and docs/evidence.md.

    python -m benchmarks.evidence.run

Every number of a table comes from a cell: a JSON file in the study's folder, which is computed
once. A study that was stopped resumes; cells that have not run have no rows. The page is made of
the tables alone (`python -m benchmarks.evidence.page`).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evidence.cells import Cell, fill
from benchmarks.evidence.choices import AUGMENT_RUNS, augmentation_cells, choice_cells
from benchmarks.evidence.data import BACKBONES, Study, extract, require_data
from benchmarks.evidence.families import write_tables
from benchmarks.evidence.figures import draw
from benchmarks.evidence.label_sets import PLANTED_SETS, TEST_SET, TRAINING_SETS, LabelSet
from benchmarks.evidence.page import DOCS, IMAGES, TABLES, write_page
from benchmarks.evidence.paired import paired_cells
from benchmarks.evidence.paper import paper_cells
from benchmarks.evidence.results import Results
from benchmarks.evidence.scored import consensus_cells, scored_cells
from benchmarks.evidence.training.cells import search_cells, seed_cells
from benchmarks.evidence.training.data import KINDS, prepare_splits
from benchmarks.evidence.training.methods import NETWORKS
from benchmarks.evidence.uncertainty import head_cell, uncertainty_cells
from benchmarks.evidence.views import extract_views, several_view_cells, single_view_cells
from benchmarks.real_data import shared_folder
from difficulty_service.base.threads import num_workers

ALL_SETS = (TEST_SET, *TRAINING_SETS, *PLANTED_SETS)


def score_all(study: Study, backbone: str, sets: Sequence[LabelSet], jobs: int) -> list[str]:
    """Extracts the images of some sets of labels and fills their cells; names of failures."""
    for source in dict.fromkeys(labels.source for labels in sets):
        extract(study, source, backbone)
    return fill(study.folder, scored_cells(study, backbone, sets), jobs)


def train_all(study: Study, jobs: int) -> list[str]:
    """Fills the cells of training, whose features must be there; the names of failures."""
    prepare_splits(study)
    failed = []
    for network in NETWORKS:
        for kind in KINDS:
            for cells in (search_cells, seed_cells):  # the first seed decides about the others
                failed += fill(study.folder, cells(study, network, kind), jobs)
    return failed


def run(study: Study, jobs: int) -> list[str]:
    """Fills all cells, what is cheap and most telling first; the names of those that failed."""

    def filled(cells: list[Cell]) -> list[str]:
        return fill(study.folder, cells, jobs)

    failed = score_all(study, "builtin", [TEST_SET, *TRAINING_SETS], jobs)
    failed += score_all(study, "MobileNetV2", [TEST_SET], jobs)
    failed += filled(consensus_cells(study, [TEST_SET]))
    failed += filled(paper_cells(study)) + filled(choice_cells(study))
    failed += train_all(study, jobs)
    failed += score_all(study, "MobileNetV2", TRAINING_SETS, jobs)
    failed += score_all(study, "builtin", PLANTED_SETS, jobs)
    for runs in AUGMENT_RUNS:
        extract(study, TEST_SET.source, "builtin", runs)
    failed += filled(augmentation_cells(study))
    failed += score_all(study, "MobileNetV2", PLANTED_SETS, jobs)
    extract_views(study)
    failed += filled(single_view_cells(study))
    failed += filled(several_view_cells(study))
    failed += filled([head_cell(study, each, ALL_SETS) for each in BACKBONES])
    failed += filled([c for each in BACKBONES for c in uncertainty_cells(study, each, ALL_SETS)])
    failed += filled(paper_cells(study)) + filled(consensus_cells(study, ALL_SETS))
    return failed + filled(paired_cells(study, BACKBONES, [TEST_SET, *TRAINING_SETS]))


def write_results(folder: Path, docs: Path) -> None:
    """Writes tables, figures and the page.

    Args:
        folder: Folder of the study.
        docs: Folder of the page.
    """
    results = Results(folder)
    write_tables(results, docs / TABLES)
    draw(results, docs / IMAGES)
    write_page(docs)


def main() -> None:
    """Fills the missing cells, then writes what the page is made of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument(
        "--jobs", type=int, default=num_workers(), help="parallel processes; 0 for a debugger"
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    parser.add_argument("--draw", action="store_true", help="only write tables and page anew")
    arguments = parser.parse_args()
    shared = shared_folder()
    study = Study(arguments.folder, shared)
    failed = []
    if not arguments.draw:
        require_data(study)
        failed = run(study, arguments.jobs)
    write_results(study.folder, arguments.docs)
    if failed:
        sys.exit(f"{len(failed)} cells failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
