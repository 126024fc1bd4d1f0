"""Tables about the figures of the paper, about views, and about what each choice costs."""

from collections.abc import Iterator

import numpy as np

from benchmarks.evidence.choices import AUGMENT_RUNS, CHOICES
from benchmarks.evidence.choices import COLUMNS as CHOICE_COLUMNS
from benchmarks.evidence.data import BACKBONES
from benchmarks.evidence.label_sets import TEST_SET
from benchmarks.evidence.label_tables import REAL_SETS, WRONG_PERCENT, auroc
from benchmarks.evidence.paper import ERROR_COLUMNS
from benchmarks.evidence.results import Results, statistic_of
from benchmarks.evidence.tables import Row, interval, unsigned
from benchmarks.evidence.views import COLUMNS, PEER, PLAIN, SEVERAL, SINGLE, name_of, view_name
from difficulty_service.images.corruptions import CORRUPTIONS


def views(results: Results) -> Iterator[Row]:
    """Rank correlations with the votes of people, of every view and of several together."""
    for several in [*([view] for view in SINGLE), *SEVERAL]:
        cell = results.cell(view_name(several, TEST_SET))
        for column in (*COLUMNS, PEER) if cell else ():
            found = cell["columns"][column]["people"] if cell else {}
            row = {"views": name_of(several), "score": column, **interval(found)}
            yield row | statistic_of(column, cell)


def log_densities(results: Results) -> Iterator[Row]:
    """How wrong labels are ranked by the mean log-densities of both backbones."""
    for name, labels in REAL_SETS.items():
        cell = results.cell(view_name(PLAIN, labels))
        for column in COLUMNS if cell else ():
            found = cell["columns"][column]["wrong"] if cell else {}
            row = {"features": "both by mean of log-densities", "labels": name}
            row |= {"wrong_percent": WRONG_PERCENT[name], "score": column, **auroc(found)}
            yield row | statistic_of(column, cell)


def severity(results: Results) -> Iterator[Row]:
    """Mean RMD over the severity of corruptions, and over ever less similar labels."""
    cells = {(name, "builtin"): f"paper/corruption/{name}" for name in CORRUPTIONS}
    cells |= {("label", each): f"paper/label-noise/{each.lower()}" for each in BACKBONES}
    for (noise, features), name in cells.items():
        cell = results.cell(name)
        for step, (mean, error) in enumerate(cell["rmd"] if cell else ()):
            yield {
                "features": features,
                "noise": noise,
                "step": str(step),
                "mean_rmd": unsigned(mean, 1),
                "mean_rmd_95": f"{error:.1f}",
            }


def errors(results: Results) -> Iterator[Row]:
    """Mean error of eight networks in the easiest and the hardest twentieth of the images."""
    for backbone in BACKBONES:
        cell = results.cell(f"paper/errors/{backbone.lower()}")
        for column in ERROR_COLUMNS if cell else ():
            rates = np.mean(cell["rates"][column], axis=0) if cell else np.zeros(1)
            yield {
                "features": backbone,
                "score": column,
                "easiest_percent": f"{100 * rates[0]:.1f}",
                "hardest_percent": f"{100 * rates[-1]:.1f}",
                **results.statistic(backbone, TEST_SET, column),
            }


def choices(results: Results) -> Iterator[Row]:
    """What every choice changes; augmentation is of the images that people voted on only."""
    for name in [each.name for each in CHOICES] + [f"{n} augmentation runs" for n in AUGMENT_RUNS]:
        wrong, people = (
            results.cell(f"choices/{labels}/{name.replace(' ', '-')}")
            for labels in ("worst", "official")
        )
        for column in CHOICE_COLUMNS if wrong or people else ():
            row = {"choice": name, "score": column}
            if wrong:
                row["wrong_auroc"] = f"{wrong['wrong'][column][0]:.4f}"
            if people:
                row["people_spearman"] = f"{people['people'][column]['spearman']:.4f}"
            yield row | statistic_of(column, *(cell for cell in (wrong, people) if cell))
