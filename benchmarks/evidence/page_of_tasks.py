"""Sections of the page about tags, boxes, copies, and what to label or keep."""

from collections.abc import Sequence

from benchmarks.evidence.page_text import NOT_RUN, Tables, count, grouped
from benchmarks.evidence.tables import Row, markdown

SHARE = "0.5"
"""Of those in the table, the one on the page."""

KEPT = ("random", "easy by RMD", "hard by RMD", "least p_wrong", "largest EL2N", "most forgotten")
WHOLE = {
    "all images": "all images",
    "easy_first": "all, easy first",
    "hard_first": "all, hard first",
    "mixed": "all, mixed",
}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
POOLS = (
    ("CIFAR-10", "0", "50"),
    ("CIFAR-10", "0", "5000"),
    ("CIFAR-10", "0.1", "500"),
    ("Tiny ImageNet", "0", "200"),
)


def sure(row: Row, difference: str, error: str) -> int:
    """1 where a difference is above its interval, -1 where below, 0 where it may be chance."""
    if not row[difference] or abs(float(row[difference])) <= float(row[error]):
        return 0
    return 1 if float(row[difference]) > 0 else -1


def tags(tables: Tables) -> str:
    """Wrong and missing tags, beside cleanlab."""
    rows = []
    for row in tables.rows("tags"):
        cells = [row["images"], row["kind"], *map(grouped, (row["errors"], row["expected"]))]
        for name in ("auroc", "average_precision"):
            difference = f"{name}_difference"
            text = f"{row[name]} / {row[f'cleanlab_{name}']}"
            ahead = sure(row, difference, f"{difference}_95") > 0
            cells.append(f"**{text}**" if ahead else text)
        rows.append([*cells, row["above_half_wrong_share"]])
    header = ("images", "errors", "planted", "expected", "AUROC", "average precision", "right")
    return f"""## Wrong and missing tags

[Several tags per image](tags.md), made of CIFAR-100's classes: ours / cleanlab's with a logistic
regression for each tag on the same features, bold where ours is larger by more than the 95 %
interval over the seeds. "Right" is the share of errors among decisions with a `p_wrong` above ½.

{markdown(header, rows or [[NOT_RUN] * len(header)])}"""


def objects(tables: Tables) -> str:
    """Errors of boxes, beside cleanlab."""
    rows = []
    for row in tables.rows("objects"):
        cells = [row["kind"], grouped(row["errors"]), row["peer"]]
        for name in ("found", "auroc", "average_precision"):
            difference = f"{name}_difference"
            text = f"{row[name]} / {row[f'peer_{name}']}" if row[name] else "-"
            ahead = sure(row, difference, f"{difference}_95")
            cells.append(f"**{text}**" if ahead > 0 else f"_{text}_" if ahead < 0 else text)
        rows.append([*cells, row["expected"] or "-", row["above_half_wrong_share"] or "-"])
    header = (
        *("errors", "planted", "peer", "found", "AUROC", "average precision"),
        *("expected", "right"),
    )
    return f"""## Errors of boxes

[Boxes](objects.md) of photographs in photographs: 5 % each swapped for another category, shifted by
half their side, and removed. Peers are cleanlab's scores of object detection and of labels, and for
removed boxes the logistic regression alone, out of sample on the same features (of the boxes, or
as a detector on the windows of `difficulty missing`). Ours / the peer's, bold where ours is larger
by more than the 95 % interval over the seeds, italic where smaller. "Found" is the share of errors
among as many of the most suspicious, "right" the share among boxes with a `p_wrong` above ½.

{markdown(header, rows or [[NOT_RUN] * len(header)])}"""


def copies(tables: Tables) -> str:
    """Copies across splits, beside the published share."""
    rows = [
        [
            DATASETS[row["dataset"]],
            *(row["cosine"], row["near_percent"], row["published_percent"], row["conflicting"]),
        ]
        for row in tables.rows("leaks")
    ]
    header = ("dataset", "cosine", "near copies (%)", "published (%)", "with another label")
    return f"""## Copies across splits

Test images with a near copy among the training images, built-in encoder, beside the duplicates that
Barz and Denzler (2020) found by a network and by eye. Equal shares need not be the same images:
[how many are copies](leaks.md#which-cosine) falls fast below 0.97.

{markdown(header, rows or [[NOT_RUN] * len(header)])}"""


def selection(tables: Tables) -> str:
    """What to label or to keep, by a probe."""
    rows = tables.rows("selection")
    keys = ("dataset", "wrong_share", "count")
    ran = {tuple(row[key] for key in keys) for row in rows}
    pools = [pool for pool in POOLS if pool in ran]
    names = dict.fromkeys(row["choice"] for row in rows)
    table = [[name, *(_choice(tables, name, *pool) for pool in pools)] for name in names]
    header = (
        "choice",
        *(
            f"{dataset}, {grouped(number)}" + (", a tenth wrong" if wrong != "0" else "")
            for dataset, wrong, number in pools
        ),
    )
    judged = [row for row in rows if row["difference"]]

    def worse(row: Row) -> bool:
        return sure(row, "difference", "difference_95") < 0

    def better(row: Row) -> bool:
        return sure(row, "difference", "difference_95") > 0

    return f"""## What to label, or to keep

Accuracy (%) of a linear probe on samples that [`difficulty select`](selecting.md) chose. Balanced
choices know all labels and are compared with the balanced random one. Bold is better than random by
more than the 95 % interval over the seeds. Of all sizes, {count(judged, better)} are better, and
{count(judged, worse)} worse.

{markdown(header, table or [[NOT_RUN] * len(header)])}"""


def _choice(tables: Tables, name: str, dataset: str, wrong: str, number: str) -> str:
    found = tables.rows("selection", dataset=dataset, wrong_share=wrong, choice=name, count=number)
    if not found:
        return "-"
    text = found[0]["accuracy"]
    return f"**{text}**" if sure(found[0], "difference", "difference_95") > 0 else text


def pruning(tables: Tables) -> str:
    """What a training set may lose, by networks from scratch; nothing where it has not run."""
    sets = dict.fromkeys((row["dataset"], row["labels"]) for row in tables.rows("pruning"))
    if not sets:
        return ""

    def cells(**values: str) -> list[str]:
        return [
            _kept(tables.rows("pruning", dataset=dataset, labels=labels, **values))
            for dataset, labels in sets
        ]

    rows = [[text, *cells(choice=order)] for order, text in WHOLE.items()]
    rows += [[f"half, {choice}", *cells(choice=choice, share=SHARE)] for choice in KEPT]
    header = ("trained on", *(f"{DATASETS[dataset]}, {labels}" for dataset, labels in sets))
    return f"""## Which images a training set may lose

Networks from scratch on 5,000 images, eight epochs, three seeds. Labels are right, or wrong as one
annotator of CIFAR-10N gave them (17 %), in CIFAR-100 a fifth at random. Accuracy (%) of all images
and of a random half of each class; points above these on the same machine, ± 95 %, bold where sure.
RMD and `p_wrong` see the given labels and MobileNetV2. [The table](evidence/pruning.csv) has other
shares.

{markdown(header, rows)}"""


def _kept(rows: Sequence[Row]) -> str:
    if not rows:
        return NOT_RUN
    row = rows[0]
    if not row["difference"]:
        return row["accuracy"]
    text = f"{row['difference']} ± {row['interval']}"
    return f"**{text}**" if sure(row, "difference", "interval") else text
