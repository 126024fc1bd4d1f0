"""Section of the page about encoders: does the likelihood of the labels choose the right one?"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, groupby

import numpy as np

from benchmarks.evidence.page_text import Tables, count, grouped
from benchmarks.evidence.tables import markdown

UNIT, AS_THEY_ARE = "unit length", "as they are"

Rows = Sequence[Mapping[str, str]]


def encoders(tables: Tables) -> str:
    """The likeliest encoder of each set of labels beside the best one, and lengths of features."""
    sets = _grouped(tables.rows("encoders"), "dataset", "labels")
    likeliest = [_first(rows, "nats") for rows in sets]
    best = [_first(rows, "rmd_auroc") for rows in sets]
    lost = [_auroc(top) - _auroc(one) for top, one in zip(best, likeliest, strict=True)]
    rows = [
        [
            f"{one['dataset']}, {one['labels']}, {grouped(one['samples'])}",
            *(each for row in (one, top) for each in (row["features"], row["rmd_auroc"])),
        ]
        for one, top in zip(likeliest, best, strict=True)
    ]
    pairs = [pair for rows in sets for pair in combinations(rows, 2)]
    alike = [
        {"alike": str((float(a["nats"]) - float(b["nats"])) * (_auroc(a) - _auroc(b)) > 0)}
        for a, b in pairs
    ]
    said = (
        _filled(
            f"Of {len(sets[0])} encoders the likeliest loses at most {max(lost):.3f} of AUROC to "
            f"the best; of two, the likelier has the higher AUROC in "
            f"{count(alike, lambda row: row['alike'] == 'True')} pairs."
        )
        if sets
        else "This has not run.\n"
    )
    header = ("labels, images", "likeliest encoder", "AUROC", "best encoder", "AUROC")
    return f"""## Choosing a backbone by the labels

[`difficulty backbones --try`](images.md#which-network) ranks encoders by how probable they make
the given labels. Does that find the encoder whose `rmd` finds most wrong labels? One draw of each
set; two of the encoders are the built-in one with noise on its weights.

{markdown(header, rows)}
{said}
{_lengths(tables)}"""


def _lengths(tables: Tables) -> str:
    """What the length of features is worth, in two sentences."""
    few: list[tuple[float, float]] = []
    many: list[tuple[float, float]] = []
    for rows in _grouped(tables.rows("scalings"), "dataset", "labels", "features", "samples"):
        by_name = {row["scaling"]: row for row in rows}
        unit, plain = by_name[UNIT], by_name[AS_THEY_ARE]
        chosen = _first(rows, "nats")
        gains = (_auroc(chosen) - _auroc(unit), _auroc(unit) - _auroc(plain))
        (few if int(rows[0]["samples"]) < MANY else many).append(gains)
    if not few or not many:
        return ""
    return _filled(
        f"Where a ridge is needed, `difficulty score` takes features of unit length, which gives "
        f"{_spread(each[1] for each in few)} of AUROC beside features as they are. The likeliest "
        f"of four lengths would give {_spread(each[0] for each in few)} more; with 50,000 images "
        f"and no ridge {_spread(sum(each) for each in many)} beside features as they are."
    )


MANY = 10_000
"""Samples from which on those of the study need no ridge."""


def _spread(values: Iterable[float]) -> str:
    """The mean of some differences with the smallest and the largest one."""
    found = np.array(list(values))
    mean, low, high = (
        f"{round(each, 3) + 0.0:+.3f}" for each in (found.mean(), found.min(), found.max())
    )
    return f"{mean} ({low} to {high})"


def _filled(text: str) -> str:
    """A paragraph of lines as long as those of the page."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def _grouped(rows: Rows, *keys: str) -> list[list[Mapping[str, str]]]:
    """Rows with the same values of some columns, which follow each other."""
    return [list(group) for _, group in groupby(rows, key=lambda row: [row[key] for key in keys])]


def _first(rows: Rows, key: str) -> Mapping[str, str]:
    return max(rows, key=lambda row: float(row[key]))


def _auroc(row: Mapping[str, str]) -> float:
    return float(row["rmd_auroc"])
