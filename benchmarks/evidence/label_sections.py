"""Sections of the page about labels: what people disagree on, and which labels are wrong."""

from collections.abc import Callable

from benchmarks.evidence.data import BACKBONES
from benchmarks.evidence.label_sets import PLANTED_SETS, TEST_SET, TRAINING_SETS, LabelSet
from benchmarks.evidence.paired import paired_name
from benchmarks.evidence.results import COLUMNS, Results, label
from benchmarks.evidence.scored import CONSENSUS
from benchmarks.evidence.summary import REAL_SETS
from benchmarks.evidence.tables import (
    NONE,
    NOT_RUN,
    Number,
    Shown,
    best_in_columns,
    best_in_rows,
    markdown,
    with_error,
    with_interval,
)

PLANTED_COLUMNS = (
    *("rmd", "label_margin", "suspicion", "agree", "uncertainty"),
    *("cleanlab self_confidence", "cleanlab normalized_margin", "AUM", "EL2N"),
    *("kNN", "SimiFeat vote", "scikit-learn LDA"),
)
WITHOUT_LABELS = ("kmeans", "knn")
"""Scores that cannot find wrong labels."""

PAIRED_COLUMNS = PLANTED_COLUMNS[5:]
METHOD_NAMES = {
    "rmd": "`rmd`, `md`, `rmd_loo`, `label_margin`",
    "suspicion": "`suspicion` (and those of `rmd`)",
    "agree": "`agree` (and those of `rmd`)",
    "uncertainty": "`uncertainty`, trained and applied to all images of this page",
    "cleanlab": "cleanlab with its probe",
    "training": "AUM with its cut, EL2N, forgetting",
    "neighbours": "kNN, SimiFeat vote",
    "pytorch-ood": "pytorch-ood, both detectors",
    "lda": "scikit-learn LDA",
    "lof": "scikit-learn LOF",
}


def people(results: Results) -> str:
    """Rank correlations with the entropy of people's votes."""
    backbones = (*BACKBONES, CONSENSUS)
    columns = [[_agreement(results, each, column) for column in COLUMNS] for each in backbones]
    table = best_in_columns(
        ("score", *BACKBONES, "both, mean of ranks"), [label(each) for each in COLUMNS], columns
    )
    return f"""## Images that people disagree on

Spearman's rank correlation of every score with the entropy of about fifty people's votes on each
of the 10,000 test images of CIFAR-10 (CIFAR-10H), with 95 % bootstrap intervals. Everything is
fitted on these images with their official labels. The best of each column is bold.

{table}
`md`, `kmeans`, `knn` and the first two of pytorch-ood do not compare classes, or know no labels.
`uncertainty` knows none either: a head trained on the 50,000 training images with their official
labels ([uncertainty](uncertainty.md)). The same head stands in the tables below, where it can only
say that an image looks hard, not that its label is wrong.
"""


def _agreement(results: Results, backbone: str, column: str) -> Shown:
    values = results.column(backbone, TEST_SET, column, "people")
    return NOT_RUN if values is None else with_interval(values, "spearman")


def wrong_labels(results: Results) -> str:
    """Labels of people that are wrong: ranking, cuts and cost."""
    parts = [
        """## Wrong labels that people gave

50,000 training images of CIFAR-10 under the labels of CIFAR-10N; the official labels say which of
them are wrong. The last column has the official labels of the 10,000 test images, of which five
people each found 54 to be wrong. cleanlab proposed the images that they looked at, so that this
column favours cleanlab, and errors that it did not propose count as right. AUROC ± 95 % (DeLong);
the best of each column is bold, whether it is ours or a peer's.
"""
    ]
    for backbone in BACKBONES:
        parts += [
            f"### AUROC, {backbone}\n\n{_table(results, backbone, _auroc)}",
            f"### Average precision, {backbone}\n\n{_table(results, backbone, _precision)}",
            f"### The cuts that the tools propose, {backbone}\n\nPrecision / recall; bold is the "
            f"best harmonic mean of both.\n\n{_table(results, backbone, _cut)}",
        ]
    parts += [
        "Cuts: `label_margin`, `suspicion` and `agree` above 0; cleanlab's `find_label_issues`;\n"
        "AUM below the 99th percentile of samples with an invented class; kNN, SimiFeat and LDA\n"
        "where they predict another class; LOF's own. The other scores propose none.\n",
        f"### AUROC, mean of the ranks with both\n\n{_table(results, CONSENSUS, _auroc)}",
        f"### `suspicion` against each peer\n\n{_paired(results)}",
    ]
    return "\n".join(parts)


def costs(results: Results) -> str:
    """Processor time and memory of every method."""
    worst = TRAINING_SETS[1]
    columns: list[list[Shown]] = []
    header = ["method"]
    for backbone in BACKBONES:
        cells = [results.cell(f"scores/{backbone.lower()}/{worst.name}/{m}") for m in METHOD_NAMES]
        for key, unit in (("seconds", "s"), ("megabytes", "MB")):
            header.append(f"{backbone}, {unit}")
            # Negative values, because the least is the best.
            columns.append(
                [
                    NOT_RUN
                    if cell is None or cell[key] is None
                    else Number(-cell[key], f"{cell[key]:,.0f}")
                    for cell in cells
                ]
            )
    table = best_in_columns(header, list(METHOD_NAMES.values()), columns)
    return f"""### What they cost

Processor seconds and peak memory above the features themselves, for 50,000 images under `worst`.
The times include what each method chooses by itself: our ridge, the penalty of cleanlab's
probe (5 folds), at least five learning rates and the two runs with an invented class for AUM, the
neighbours, five shrinkages of LDA.

{table}"""


def planted(results: Results) -> str:
    """Labels that are wrong on purpose."""
    parts = [
        """## Planted wrong labels

AUROC on the 10,000 test images of CIFAR-100, which the built-in encoder, trained on CIFAR-100's
training images, has not seen, and on 2,000 validation images of Tiny ImageNet, ten per class.
Symmetric noise draws another class at random; class-dependent noise takes the next class of the
superclass (CIFAR-100) or the next class (Tiny ImageNet); in instance-dependent noise, small
pictures of the images decide by a random projection what a label becomes (after Xia et al. 2020).
The best of each row is bold. Of the peers above, LOF and pytorch-ood are left out: the first is far
behind, and the only one of the second that knows the label is `rmd` without a ridge.

![AUROC over the rate of wrong labels, by dataset and kind of noise](images/evidence-planted.svg)
"""
    ]
    for backbone in BACKBONES:
        rows: dict[str, list[Shown]] = {}
        for labels in PLANTED_SETS:
            cells = [_planted_auroc(results, backbone, labels, each) for each in PLANTED_COLUMNS]
            source = "CIFAR-100" if labels.source.startswith("cifar100") else "Tiny ImageNet"
            rows[f"{source}, {labels.kind}, {100 * labels.rate:g} %"] = cells
        begun = {
            name: cells for name, cells in rows.items() if any(cell != NOT_RUN for cell in cells)
        }
        parts.append(f"### Planted wrong labels, {backbone}\n")
        if begun:
            parts.append(best_in_rows(("labels", *map(label, PLANTED_COLUMNS)), begun))
        if missing := [name for name in rows if name not in begun]:
            parts.append(f"Not run: {'; '.join(missing)}.\n")
    return "\n".join(parts)


def _planted_auroc(results: Results, backbone: str, labels: LabelSet, column: str) -> Shown:
    values = results.column(backbone, labels, column, "wrong")
    return NOT_RUN if values is None else Number(values["auroc"], f"{values['auroc']:.3f}")


def _table(results: Results, backbone: str, cell: Callable[..., Shown]) -> str:
    names = [column for column in COLUMNS if column not in WITHOUT_LABELS]
    columns = [
        [cell(results, backbone, labels, column) for column in names]
        for labels in REAL_SETS.values()
    ]
    return best_in_columns(("score", *REAL_SETS), [label(column) for column in names], columns)


def _paired(results: Results) -> str:
    """AUROC of ours minus that of peers."""
    rows = []
    for backbone in BACKBONES:
        for name, labels in REAL_SETS.items():
            cell = results.cell(paired_name(backbone, labels))
            texts = [NOT_RUN] * len(PAIRED_COLUMNS)
            if cell is not None:
                found = [cell["difference"][column] for column in PAIRED_COLUMNS]
                texts = [
                    f"**{difference:+.4f}** ± {error:.4f}"
                    if difference < 0
                    else f"{difference:+.4f} ± {error:.4f}"
                    for difference, error in found
                ]
            rows.append([f"{name}, {backbone}", *texts])
    table = markdown(("labels", *map(label, PAIRED_COLUMNS)), rows)
    return f"""AUROC of `suspicion` minus that of the peer ± 95 % (DeLong, paired); an interval
without 0 is a sure difference. Where the peer is better, the number is bold.

{table}"""


def _auroc(results: Results, backbone: str, labels: LabelSet, column: str) -> Shown:
    values = results.column(backbone, labels, column, "wrong")
    return NOT_RUN if values is None else with_error(values["auroc"], values["auroc_error"])


def _precision(results: Results, backbone: str, labels: LabelSet, column: str) -> Shown:
    values = results.column(backbone, labels, column, "wrong")
    if values is None:
        return NOT_RUN
    return Number(values["average_precision"], f"{values['average_precision']:.3f}")


def _cut(results: Results, backbone: str, labels: LabelSet, column: str) -> Shown:
    values = results.column(backbone, labels, column, "wrong")
    if values is None:
        return NOT_RUN
    if "flagged" not in values:
        return NONE
    precision, recall = values["precision"], values["recall"]
    harmonic = 2 * precision * recall / max(precision + recall, 1e-12)
    return Number(harmonic, f"{precision:.3f} / {recall:.3f}")
