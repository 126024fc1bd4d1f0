"""How much better `ambiguity` agrees with people than peers, and whether it finds wrong labels.

    python -m benchmarks.evidence.ambiguity

Fills the cells of our scores and of the peers that agree best on the test images of CIFAR-10 by
three encoders, and of two on labels of CIFAR-10N by the built-in one. Writes
docs/evidence/ambiguity.csv, the rows of people.csv whose cells have run, and the page.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.evidence.cells import Cell, Result, fill, read_arrays, result_file
from benchmarks.evidence.data import BACKBONES, Study, extract, read_images, require_data
from benchmarks.evidence.families import FAMILIES
from benchmarks.evidence.label_sets import TEST_SET, TRAINING_SETS, LabelSet, label_samples
from benchmarks.evidence.label_tables import REAL_SETS, people
from benchmarks.evidence.measures import (
    Scores,
    auroc_difference,
    mean_of_ranks,
    spearman_difference,
)
from benchmarks.evidence.methods import OWN
from benchmarks.evidence.names import PHOTO_ENCODER, WITH_SUSPICION
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.results import Results
from benchmarks.evidence.scored import cell_name, consensus_cells, score_samples
from benchmarks.evidence.tables import Row, read_rows, write_rows
from benchmarks.real_data import shared_folder
from difficulty_service.base.threads import num_workers

ENCODERS = (*BACKBONES, PHOTO_ENCODER)
LEADING = ("cleanlab", "training")
"""Methods of the peers that agree best; `evidence.run` compares all."""

OURS, ALONE = "ambiguity", "suspicion"
SETS = TRAINING_SETS[:2]
"""Labels of CIFAR-10N with few and with many wrong ones."""

COLUMNS = "features labels score than measure difference difference_95"


def scores_of(study: Study, backbone: str, labels: LabelSet, method: str) -> dict[str, Scores]:
    """Columns of a method; samples that cannot be scored count as unsuspicious."""
    arrays = read_arrays(study.folder, cell_name(backbone, labels, method))
    return {
        name: np.nan_to_num(each.astype(np.float64), nan=float(np.nanmin(each)))
        for name, each in arrays.items()
    }


def compare_with_people(study: Study, backbone: str) -> Result:
    """The correlation of ours with votes minus those of the columns of `agree` and of peers."""
    images = read_images(study, TEST_SET.source, backbone)
    _, targets = label_samples(study, images, TEST_SET)
    votes = targets.disagreement
    if votes is None:
        raise ValueError(f"nobody voted on {TEST_SET.name}")
    ours = scores_of(study, backbone, TEST_SET, OURS)[OURS]
    others = {"agree": scores_of(study, backbone, TEST_SET, "agree")["agree"]}
    for method in LEADING:
        others |= scores_of(study, backbone, TEST_SET, method)
    found = {name: spearman_difference(ours, each, votes) for name, each in others.items()}
    return Result({"difference": found})


def compare_with_suspicion(study: Study, backbone: str, labels: LabelSet) -> Result:
    """The AUROC of wrong labels by ours, alone or beside `suspicion`, minus that of the latter."""
    images = read_images(study, labels.source, backbone)
    _, targets = label_samples(study, images, labels)
    ours, alone = (scores_of(study, backbone, labels, each)[each] for each in (OURS, ALONE))
    candidates = {OURS: ours, WITH_SUSPICION: mean_of_ranks([ours, alone])}
    return Result(
        {
            "difference": {
                name: auroc_difference(each, alone, targets.wrong)
                for name, each in candidates.items()
            }
        }
    )


def people_name(backbone: str) -> str:
    """Name of the cell of a comparison with people."""
    return f"ambiguity/people/{backbone.lower()}"


def wrong_name(backbone: str, labels: LabelSet) -> str:
    """Name of the cell of a comparison by wrong labels."""
    return f"ambiguity/wrong/{backbone.lower()}/{labels.name}"


def rows(results: Results) -> Iterator[Row]:
    """Rows of the table, of the cells that have run."""

    def row(**texts: object) -> Row:
        return {name: str(text) for name, text in texts.items()}

    for backbone in ENCODERS:
        cell = results.cell(people_name(backbone)) or {"difference": {}}
        for peer, (more, width) in cell["difference"].items():
            yield row(
                features=backbone,
                labels="votes",
                score=OURS,
                than=peer,
                measure="spearman",
                difference=f"{more:.4f}",
                difference_95=f"{width:.4f}",
            )
        for name, labels in REAL_SETS.items():
            cell = results.cell(wrong_name(backbone, labels)) or {"difference": {}}
            for score, (more, width) in cell["difference"].items():
                yield row(
                    features=backbone,
                    labels=name,
                    score=score,
                    than=ALONE,
                    measure="auroc",
                    difference=f"{more:.4f}",
                    difference_95=f"{width:.4f}",
                )


def run(study: Study, jobs: int, encoders: Sequence[str], sets: Sequence[LabelSet]) -> list[str]:
    """Fills the cells; the names of those that failed.

    Args:
        study: Images and results.
        jobs: Number of processes at a time.
        encoders: Of the test images.
        sets: Labels of training images in which wrong ones are looked for.
    """
    failed = []
    for backbone in encoders:
        extract(study, TEST_SET.source, backbone)
    compared = [(each, TEST_SET) for each in encoders]
    for labels in sets:
        extract(study, labels.source, "builtin")
        compared.append(("builtin", labels))
    scored = [
        Cell(
            cell_name(backbone, labels, method),
            partial(score_samples, study, backbone, labels, method),
        )
        for backbone, labels in compared
        for method in ((*OWN, *LEADING) if labels == TEST_SET else (ALONE, OURS))
    ]
    failed += fill(study.folder, scored, jobs)
    failed += fill(study.folder, consensus_cells(study, [TEST_SET]), jobs)
    cells = [Cell(people_name(e), partial(compare_with_people, study, e)) for e in encoders]
    cells += [
        Cell(wrong_name(backbone, labels), partial(compare_with_suspicion, study, backbone, labels))
        for backbone, labels in compared
        if result_file(study.folder, cell_name(backbone, labels, OURS)).exists()
    ]
    return failed + fill(study.folder, cells, jobs)


def write_tables(results: Results, folder: Path) -> None:
    """Writes the table of differences, and the rows of people.csv whose cells have run."""
    write_rows(folder / "ambiguity.csv", COLUMNS.split(), rows(results))
    known = {(row["features"], row["score"]): row for row in read_rows(folder / "people.csv")}
    known |= {(row["features"], row["score"]): dict(row) for row in people(results)}
    _, columns = FAMILIES["people"]
    write_rows(folder / "people.csv", columns.split(), known.values())


def main() -> None:
    """Fills the missing cells, then writes tables and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--jobs", type=int, default=num_workers(), help="parallel processes")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=ENCODERS)
    parser.add_argument("--labels", nargs="*", choices=[each.kind for each in SETS])
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder())
    require_data(study)
    sets = [each for each in SETS if arguments.labels is None or each.kind in arguments.labels]
    failed = run(study, arguments.jobs, arguments.encoders, sets)
    write_tables(Results(study.folder), arguments.docs / TABLES)
    write_page(arguments.docs)
    if failed:
        sys.exit(f"{len(failed)} cells failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
