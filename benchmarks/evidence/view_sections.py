"""Sections of the page about several views of the same images."""

from collections.abc import Sequence

from benchmarks.evidence.label_sets import TEST_SET, LabelSet
from benchmarks.evidence.results import Results, label
from benchmarks.evidence.summary import REAL_SETS
from benchmarks.evidence.tables import (
    NOT_RUN,
    Shown,
    best_in_columns,
    best_in_rows,
    with_error,
    with_interval,
)
from benchmarks.evidence.views import (
    COLUMNS,
    PEER,
    PLAIN,
    SEVERAL,
    SINGLE,
    View,
    name_of,
    view_name,
)


def views(results: Results) -> str:
    """Rank correlations with the votes by view, and wrong labels by both backbones."""
    rows = {
        name_of(each): [_agreement(results, each, column) for column in (*COLUMNS, PEER)]
        for each in ([[view] for view in SINGLE] + [list(several) for several in SEVERAL])
    }
    header = ("views", *map(label, (*COLUMNS, PEER)))
    wrong = [
        [_auroc(results, labels, column) for column in COLUMNS] for labels in REAL_SETS.values()
    ]
    return f"""## Several views of the same images

`difficulty consensus` averages the log-densities of several
[views](comparing.md#several-backbones-as-one): other backbones, images of another size, or
[mirror images](images.md#mirror-images) ("+ flip"). "MobileNetV2-224" has images of 224 pixels,
cropped as in its training.

### Agreement with people, by view

Spearman's rank correlation with the votes as above, of every view, and of several together. EL2N
is no density; its scores of several views are averaged by rank. The best of each row is bold.

{best_in_rows(header, rows)}
### AUROC, mean log-densities of both backbones

Wrong labels that people gave, as above, by the builtin and MobileNetV2 features together; compare
with the mean of ranks, which is also what the peers have there.

{best_in_columns(("score", *REAL_SETS), [label(column) for column in COLUMNS], wrong)}"""


def _agreement(results: Results, several: Sequence[View], column: str) -> Shown:
    cell = results.cell(view_name(several, TEST_SET))
    return NOT_RUN if cell is None else with_interval(cell["columns"][column]["people"], "spearman")


def _auroc(results: Results, labels: LabelSet, column: str) -> Shown:
    cell = results.cell(view_name(PLAIN, labels))
    if cell is None:
        return NOT_RUN
    values = cell["columns"][column]["wrong"]
    return with_error(values["auroc"], values["auroc_error"])
