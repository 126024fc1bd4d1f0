"""Every table of the study: the CSV file that keeps it, and what fills it from the cells."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from benchmarks.evidence import label_tables, paper_tables
from benchmarks.evidence.results import Results
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.evidence.training import tables as training_tables


def study(results: Results) -> Iterator[Row]:
    """What the study took."""
    yield {
        "cells": str(len(results.all_cells())),
        "processor_hours": f"{results.total_hours():.1f}",
        "machine": results.machines(),
    }


def wrong_labels(results: Results) -> Iterator[Row]:
    """All that ranks labels that people got wrong."""
    return chain(label_tables.wrong_labels(results), paper_tables.log_densities(results))


FAMILIES: dict[str, tuple[Callable[[Results], Iterator[Row]], str]] = {
    "people": (
        label_tables.people,
        "features score spearman spearman_low spearman_high suspicion_statistic",
    ),
    "views": (
        paper_tables.views,
        "views score spearman spearman_low spearman_high suspicion_statistic",
    ),
    "wrong_labels": (
        wrong_labels,
        "features labels wrong_percent score auroc auroc_95 average_precision precision recall "
        "suspicion_statistic",
    ),
    "paired": (
        label_tables.paired,
        "features labels peer auroc_difference auroc_difference_95 suspicion_statistic",
    ),
    "planted": (
        label_tables.planted,
        "features dataset noise wrong_percent score auroc suspicion_statistic",
    ),
    "best": (label_tables.best, "labels features score whose sets suspicion_statistic"),
    "costs": (label_tables.costs, "features method scores seconds megabytes suspicion_statistic"),
    "severity": (paper_tables.severity, "features noise step mean_rmd mean_rmd_95"),
    "errors": (
        paper_tables.errors,
        "features score easiest_percent hardest_percent suspicion_statistic",
    ),
    "choices": (
        paper_tables.choices,
        "choice score wrong_auroc people_spearman suspicion_statistic",
    ),
    "training": (
        training_tables.training,
        "network labels method alpha alpha_is measure mean sd difference difference_95 is "
        "suspicion_statistic",
    ),
    "verdicts": (
        training_tables.verdicts,
        "method beside network labels answer better worse suspicion_statistic",
    ),
    "networks": (
        training_tables.networks,
        "network parameters epochs seeds alphas_tried temperature",
    ),
    "study": (study, "cells processor_hours machine"),
}
"""By the name of the file: what fills it, and its columns.

`suspicion_statistic` says which statistic a number of `suspicion` went by. A study of another kind
adds its table here, and its cells in `run.run`.
"""


def write_tables(results: Results, folder: Path) -> None:
    """Writes every table.

    Args:
        results: Results of the cells that have run.
        folder: Folder of the CSV files.
    """
    for name, (fill, columns) in FAMILIES.items():
        write_rows(folder / f"{name}.csv", columns.split(), fill(results))
