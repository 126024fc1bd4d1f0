"""Planted errors of tags: how many are found, and how many are expected, beside cleanlab.

    pip install '.[peers]'
    python -m benchmarks.evidence.image_tags [--seeds 3] [--images 5000] [--composites 3000]

Two sets of images with tags: photographs of CIFAR-100's test set, each with its fine and its coarse
class as tags, and composites of one to four of them at 32 pixels in the cells of a square, with
the coarse class of each as a tag. 10 % of the tags are left out, and wrong ones are added, 5 % as
many as there are tags, all at random. cleanlab takes out-of-sample probabilities of one logistic
regression for each tag, by three folds, on the same features.

Writes `tags.csv` of the evidence, for wrong and for missing tags: their number, the expected one,
how many have a probability above 1/2 and the share of these that are errors, the AUROC and the
average precision of either ranking, and what ours has more than cleanlab's, with the 95 % interval
over the seeds of the errors.
"""

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import difficulty_service as ds
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.evidence.training.comparison import paired_difference
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder, skipped
from difficulty_service.analyses.tags.model import GivenTags, fit_tags
from difficulty_service.gaussians.batches import TensorBatches

SHARED = shared_folder()
SIDE, MOST = 32, 4
MISSING, WRONG = 0.10, 0.05
COLUMNS = (
    *("images", "kind", "seeds", "errors", "expected", "above_half", "above_half_wrong_share"),
    *(
        f"{peer}{name}{ending}"
        for name in ("auroc", "average_precision")
        for peer, ending in (
            ("", ""),
            ("cleanlab_", ""),
            ("", "_difference"),
            ("", "_difference_95"),
        )
    ),
    "machine",
)

Bools = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Tagged:
    """Images with the tags that are right.

    Attributes:
        right: Whether an image has each tag. Shape (images, tags).
    """

    name: str
    images: Sequence[bytes]
    right: Bools


def photographs(shared: Path, number: int) -> tuple[Sequence[bytes], Sequence[tuple[str, str]]]:
    """Encoded photographs, with the fine and the coarse class of each."""
    columns = ["image", "label_name", "coarse_name"]
    table = pq.read_table(shared / "data/cifar100_test.parquet", columns=columns)[:number]
    fine, coarse = (table[name].to_pylist() for name in columns[1:])
    return table["image"].to_pylist(), list(zip(fine, coarse, strict=True))


def one_hot(tags: Sequence[Sequence[str]]) -> Bools:
    """Which images have each tag, by the names of tags in their order."""
    names = sorted({tag for each in tags for tag in each})
    return np.array([[name in each for name in names] for each in map(set, tags)])


def composites(shared: Path, number: int) -> Tagged:
    """Squares of four cells, of which one to four hold a photograph."""
    random = np.random.default_rng(0)
    photos, classes = photographs(shared, 10_000)
    images, tags = [], []
    for _ in range(number):
        rows = random.choice(len(photos), int(random.integers(1, MOST + 1)), replace=False)
        colour = tuple(random.integers(0, 256, 3).tolist())
        square = Image.new("RGB", (2 * SIDE, 2 * SIDE), colour)
        for row, cell in zip(rows.tolist(), random.permutation(MOST).tolist(), strict=False):
            photo = Image.open(io.BytesIO(photos[row])).convert("RGB")
            square.paste(photo, (cell % 2 * SIDE, cell // 2 * SIDE))
        data = io.BytesIO()
        square.save(data, "PNG")
        images.append(data.getvalue())
        tags.append([classes[row][1] for row in rows.tolist()])
    return Tagged("composites", images, one_hot(tags))


def plant(right: Bools, seed: int) -> Bools:
    """The tags with errors."""
    random = np.random.default_rng(seed)
    missing = right & (random.random(right.shape) < MISSING)
    share = WRONG * right.mean() / (1 - right.mean())
    return (right & ~missing) | (~right & (random.random(right.shape) < share))


def ours(features: NDArray[np.float32], has: Bools) -> Numbers:
    """Probability that each decision is wrong."""
    given = torch.from_numpy(has)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), given.sum(dim=1).cumsum(0)])
    tags = GivenTags(starts, given.nonzero()[:, 1], given.shape[1])
    numbers, rows = torch.arange(len(features)), torch.from_numpy(features)
    rule = fit_tags(TensorBatches(rows, numbers), tags, 0, torch.float32)
    found = [judged.suspicion.sigmoid() for _, judged in rule.judge(rows, numbers)]
    every = np.zeros(has.shape)
    every[:, rule.fitted.numpy()] = torch.cat(found).numpy()
    return every


def cleanlabs(features: NDArray[np.float32], has: Bools, seed: int) -> Numbers:
    """1 minus cleanlab's quality of each decision."""
    from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class

    probe = OneVsRestClassifier(
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=100))
    )
    folds = KFold(3, shuffle=True, random_state=seed)
    probabilities = cross_val_predict(probe, features, has, cv=folds, method="predict_proba")
    labels = [np.flatnonzero(row).tolist() for row in has]
    quality = get_label_quality_scores_per_class(labels, probabilities)
    return 1 - np.asarray(quality, np.float64)


@dataclass(frozen=True)
class Found:
    """What the rankings find of the errors of one kind, for one seed.

    Attributes:
        counts: Number of errors, the expected one, how many are above 1/2, and how many of these
            are errors.
        auroc: AUROC of ours and of cleanlab's.
        precision: Average precision of ours and of cleanlab's.
    """

    counts: tuple[float, float, float, float]
    auroc: tuple[float, float]
    precision: tuple[float, float]


def compare(p_wrong: Numbers, peer: Numbers, is_wrong: Bools) -> Found:
    """How both find some errors. Shape (decisions,) each."""
    sure = p_wrong > 0.5  # noqa: PLR2004 - more likely than not
    return Found(
        (is_wrong.sum(), p_wrong.sum(), sure.sum(), (sure & is_wrong).sum()),
        (roc_auc_score(is_wrong, p_wrong), roc_auc_score(is_wrong, peer)),
        (average_precision_score(is_wrong, p_wrong), average_precision_score(is_wrong, peer)),
    )


def row_of(found: Sequence[Found]) -> Row:
    """Means over the seeds, and the differences from cleanlab with their intervals."""
    errors, expected, sure, right = np.mean([each.counts for each in found], axis=0)
    row = {
        "seeds": str(len(found)),
        "errors": f"{errors:.0f}",
        "expected": f"{expected:.0f}",
        "above_half": f"{sure:.0f}",
        "above_half_wrong_share": f"{right / sure:.2f}" if sure else "",
    }
    for name, pairs in (
        ("auroc", [each.auroc for each in found]),
        ("average_precision", [each.precision for each in found]),
    ):
        ours, peers = zip(*pairs, strict=True)
        row |= {name: f"{np.mean(ours):.3f}", f"cleanlab_{name}": f"{np.mean(peers):.3f}"}
        if len(found) > 1:
            mean, error = paired_difference(ours, peers)
            row |= {f"{name}_difference": f"{mean:.3f}", f"{name}_difference_95": f"{error:.3f}"}
    return row


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """A row for each set of images and kind of error."""
    encoder = ds.backbone(arguments.backbone)
    photos, classes = photographs(SHARED, arguments.images)
    for tagged in (
        Tagged("classes", photos, one_hot(classes)),
        composites(SHARED, arguments.composites),
    ):
        features = encoder.encode(tagged.images)
        found: dict[str, list[Found]] = {"wrong": [], "missing": []}
        for seed in range(arguments.seeds):
            has = plant(tagged.right, seed + 1)
            is_wrong, p_wrong, peer = (
                has != tagged.right,
                ours(features, has),
                cleanlabs(features, has, seed),
            )
            for kind, of in (("wrong", has), ("missing", ~has)):
                found[kind].append(compare(p_wrong[of], peer[of], is_wrong[of]))
        for kind, each in found.items():
            row = {"images": tagged.name, "kind": kind, **row_of(each), "machine": machine()}
            print(row, flush=True)
            yield row


def main() -> None:
    """Plants errors in both sets of images, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--composites", type=int, default=3000)
    parser.add_argument("--backbone", default="builtin")
    arguments = parser.parse_args()
    if not (SHARED / "data/cifar100_test.parquet").exists():
        sys.exit(skipped("CIFAR-100"))
    write_rows(DOCS / TABLES / "tags.csv", COLUMNS, list(rows(arguments)))
    write_page(DOCS)


if __name__ == "__main__":
    main()
