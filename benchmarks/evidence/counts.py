"""How many labels `suspicion` says are wrong, beside how many are.

    python -m benchmarks.evidence.counts [--folder runs/evidence] [--seeds 3]

Writes two tables of the evidence, and its page anew. `counts.csv` has, for each set of labels, the
labels known to be wrong, what `p_wrong` adds up to, how many labels have a `p_wrong` above one half
and above 0.95 (the tiers "probably wrong" and "almost certainly wrong") and the share of each that
is wrong, the lower end of the fitted number of wrong labels, in how many draws at least so many are
known to be wrong, and the AUROC of `suspicion` and what it has more than
`label_margin`, with the 95 % interval over the draws. `p_wrong.csv` has how often labels are wrong
where `p_wrong` is in each of ten equal ranges, over all sets. A draw takes other images or plants
other wrong labels. Features are those of `make evidence`; texts are encoded anew.
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import difficulty_service as ds
from benchmarks.evidence.data import Images, Study, extract, read_images, require_data
from benchmarks.evidence.label_sets import OFFICIAL, LabelSet, label_samples
from benchmarks.evidence.noise import change_at_random
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from benchmarks.studies.newsgroups import encode
from difficulty_service.scores.label_counts import shares_of_wrong
from difficulty_service.scores.tiers import ALMOST_CERTAIN, PROBABLE

SIZES = (10_000, 2_000, 500)
IMAGES = {
    "CIFAR-10N": ("cifar10-train", SIZES, ("builtin",)),
    "CIFAR-100": ("cifar100-test", (10_000, 2_000), ("builtin",)),
    "Tiny ImageNet": ("tiny-imagenet", (2_000,), ("builtin", "builtin-photos")),
}
"""Images of each set of labels, how many are drawn, and what encodes them."""
KINDS = {
    "CIFAR-10N": [(OFFICIAL, 0), ("aggre", 0), ("rand1", 0), ("worst", 0)]
    + [("symmetric", rate) for rate in (0.03, 0.2)],
    "CIFAR-100": [("symmetric", 0.05), ("class-dependent", 0.05), ("class-dependent", 0.2)],
    "Tiny ImageNet": [("symmetric", 0.05), ("symmetric", 0.2)],
}
BINS = 10
COUNTS = (
    *("dataset", "labels", "features", "samples", "draws", "wrong", "expected", "above_half"),
    *("above_half_wrong_share", "above_95", "above_95_wrong_share"),
    *("fit_low", "fit_low_held"),
    *("suspicion_auroc", "minus_label_margin", "minus_label_margin_95", "machine"),
)
RANGES = ("p_wrong_from", "p_wrong_to", "labels", "mean_p_wrong", "wrong_share")


Names: TypeAlias = tuple[str, str, str]
"""Names of a dataset, of its labels and of its features."""


@dataclass(frozen=True)
class Labelled:
    """Samples with given labels.

    Attributes:
        features: Shape (samples, dim).
        labels: Shape (samples,).
        right: What the dataset or the person who looked says. Shape (samples,).
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    right: NDArray[np.int64]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether the given label is known to be wrong. Shape (samples,)."""
        return self.labels != self.right


@dataclass(frozen=True)
class Found:
    """What the columns say of one draw; NaN where no label is wrong."""

    wrong: int
    expected: float
    fit_low: int
    suspicion: float
    margin: float
    p_wrong: NDArray[np.float64]
    is_wrong: NDArray[np.bool_]

    def above(self, limit: float) -> tuple[int, int]:
        """How many labels have a larger `p_wrong`, and how many of these are wrong."""
        flagged = self.p_wrong > limit
        return int(flagged.sum()), int((flagged & self.is_wrong).sum())


def fit_low(scores: ds.Scores) -> int:
    """The lower end of the number of wrong labels that was fitted; 0 without one."""
    shares = shares_of_wrong(scores.provenance.suspicion)
    return 0 if shares is None else math.floor(shares[0] * len(scores))


def judge(samples: Labelled) -> Found:
    """Scores the samples and compares the columns with what is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a reader of a file should know
        scores = ds.score(samples.features, samples.labels, scorers=("suspicion",))
    found = {
        name: scores[name].to_numpy().astype(np.float64)
        for name in ("suspicion", "label_margin", "p_wrong")
    }
    p_wrong, wrong = np.nan_to_num(found["p_wrong"]), samples.wrong
    suspicion, margin = (
        float(roc_auc_score(wrong, np.nan_to_num(each, nan=np.nanmin(each))))
        if wrong.any()
        else np.nan
        for each in (found["suspicion"], found["label_margin"])
    )
    return Found(
        int(wrong.sum()),
        float(p_wrong.sum()),
        fit_low(scores),
        suspicion,
        margin,
        p_wrong,
        wrong,
    )


def draw_images(
    study: Study, images: Images, label_set: LabelSet, size: int, seed: int
) -> Labelled:
    """Some images of a set; the draw chooses them and where wrong labels are planted."""
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(len(images.labels), min(size, len(images.labels)), replace=False))
    chosen = Images(images.features[rows], images.labels[rows], images.positions[rows])
    if label_set.kind == OFFICIAL:
        return Labelled(chosen.features, chosen.labels, chosen.labels)
    if label_set.rate and label_set.kind == "symmetric":
        classes = int(images.labels.max()) + 1
        given = change_at_random(chosen.labels, classes, label_set.rate, random)
        return Labelled(chosen.features, given, chosen.labels)
    samples, _ = label_samples(study, chosen, label_set)
    return Labelled(samples.features, samples.labels, chosen.labels)


def draw_texts(texts: Labelled, rate: float, size: int, seed: int) -> Labelled:
    """Some texts with planted wrong labels."""
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(len(texts.labels), min(size, len(texts.labels)), replace=False))
    right = texts.labels[rows]
    given = change_at_random(right, int(texts.labels.max()) + 1, rate, random)
    return Labelled(texts.features[rows], given, right)


def sets(study: Study) -> Iterator[tuple[Names, int, Callable[[int], Labelled]]]:
    """Names of dataset, labels and features, number of samples, and how to draw each set."""
    for name, (source, sizes, encoders) in IMAGES.items():
        for features in encoders:
            extract(study, source, features)
            images = read_images(study, source, features)
            for kind, rate in KINDS[name]:
                labels = kind + (f" {100 * rate:g} %" if rate else "")
                for size in sizes:
                    draw = partial(draw_images, study, images, LabelSet(source, kind, rate), size)
                    yield (name, labels, features), size, draw
    table, encoder = str(study.shared / "data/newsgroups20_bydate.parquet"), "builtin-text"
    encoded, given = encode(table, "train", encoder)
    texts = Labelled(encoded, given, given)
    for rate in (0.05, 0.2):
        for size in (len(given), 2_000):
            names = ("20 Newsgroups", f"symmetric {100 * rate:g} %", encoder)
            yield names, size, partial(draw_texts, texts, rate, size)


def row_of(names: Names, size: int, draws: list[Found]) -> Row:
    """The row of a set of labels: means over the draws, and the precision of all of them."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(each, name) for each in draws]))

    row = dict(zip(("dataset", "labels", "features"), names, strict=True))
    row |= {"samples": str(size), "draws": str(len(draws))}
    row |= {name: f"{mean(name):.0f}" for name in ("wrong", "expected")}
    row |= {"fit_low": f"{mean('fit_low'):.0f}", "machine": machine()}
    row["fit_low_held"] = str(sum(each.fit_low <= each.wrong for each in draws))
    for name, limit in (("above_half", PROBABLE), ("above_95", ALMOST_CERTAIN)):
        flagged, right = np.sum([each.above(limit) for each in draws], axis=0).tolist()
        row[name] = f"{flagged / len(draws):.0f}"
        if right:
            row[f"{name}_wrong_share"] = f"{right / flagged:.2f}"
    if mean("wrong"):
        gains = np.array([each.suspicion - each.margin for each in draws])
        row["suspicion_auroc"] = f"{mean('suspicion'):.3f}"
        row["minus_label_margin"] = f"{gains.mean():.3f}"
        row["minus_label_margin_95"] = f"{1.96 * gains.std(ddof=1) / np.sqrt(len(gains)):.3f}"
    return row


def reliability(draws: list[Found]) -> Iterator[Row]:
    """How often labels are wrong by ranges of `p_wrong`; ranges without labels are left out."""
    p_wrong = np.concatenate([each.p_wrong for each in draws])
    wrong = np.concatenate([each.is_wrong for each in draws])
    bins = np.minimum((p_wrong * BINS).astype(int), BINS - 1)
    for each in np.unique(bins):
        chosen = bins == each
        yield {
            "p_wrong_from": f"{each / BINS:.1f}",
            "p_wrong_to": f"{(each + 1) / BINS:.1f}",
            "labels": str(chosen.sum()),
            "mean_p_wrong": f"{p_wrong[chosen].mean():.3f}",
            "wrong_share": f"{wrong[chosen].mean():.3f}",
        }


def write_counts(docs: Path, rows: list[Row], draws: list[Found]) -> None:
    """Writes both tables, and the page that shows rows of them.

    Args:
        docs: Folder of the page.
        rows: Rows of all sets of labels.
        draws: All draws of all sets.
    """
    write_rows(docs / TABLES / "counts.csv", COUNTS, rows)
    write_rows(docs / TABLES / "p_wrong.csv", RANGES, reliability(draws))
    write_page(docs)


def main() -> None:
    """Judges every set of labels, then writes the tables and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--seeds", type=int, default=3, help="draws of each set")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder())
    require_data(study)
    rows: list[Row] = []
    all_draws: list[Found] = []
    for names, size, draw in sets(study):
        draws = [judge(draw(seed)) for seed in range(arguments.seeds)]
        rows.append(row_of(names, size, draws))
        all_draws += draws
        print(", ".join(rows[-1].values()), flush=True)
    write_counts(arguments.docs, rows, all_draws)


if __name__ == "__main__":
    main()
