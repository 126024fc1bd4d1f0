"""Planted errors of tags: how many are found, and how many are expected, beside cleanlab.

    pip install cleanlab==2.9.0
    DIFFICULTY_SHARED=FOLDER python benchmarks/tags.py [--images 5000] [--composites 3000]

Two sets of images with tags: photographs of CIFAR-100's test set, each with its fine and its coarse
class as tags, and composites of one to four of them at 32 pixels in the cells of a square, with
the coarse class of each as a tag. 10 % of the tags are left out, and wrong ones are added, 5 % as
many as there are tags, all at random. cleanlab takes out-of-sample probabilities of one logistic
regression for each tag, by three folds, on the same features.

Prints for wrong and for missing tags: their number, the expected one, how many have a probability
above 1/2 and the share of these that are errors, and the AUROC and the average precision of either
ranking.
"""

import argparse
import io
import os
import sys
import time
from collections.abc import Sequence
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
from difficulty_service.gaussians.chunks import TensorChunks
from difficulty_service.gaussians.tags import GivenTags, fit_tags

SHARED = Path(os.environ.get("DIFFICULTY_SHARED", "../shared"))
SIDE, MOST = 32, 4
MISSING, WRONG = 0.10, 0.05

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


def plant(right: Bools) -> Bools:
    """The tags with errors."""
    random = np.random.default_rng(1)
    missing = right & (random.random(right.shape) < MISSING)
    share = WRONG * right.mean() / (1 - right.mean())
    return (right & ~missing) | (~right & (random.random(right.shape) < share))


def ours(features: NDArray[np.float32], has: Bools) -> Numbers:
    """Probability that each decision is wrong."""
    given = torch.from_numpy(has)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), given.sum(dim=1).cumsum(0)])
    tags = GivenTags(starts, given.nonzero()[:, 1], given.shape[1])
    numbers, rows = torch.arange(len(features)), torch.from_numpy(features)
    rule = fit_tags(TensorChunks(rows, numbers), tags, 0, torch.float32)
    found = [judged.suspicion.sigmoid() for _, judged in rule.judge(rows, numbers)]
    every = np.zeros(has.shape)
    every[:, rule.fitted.numpy()] = torch.cat(found).numpy()
    return every


def cleanlabs(features: NDArray[np.float32], has: Bools) -> Numbers:
    """1 minus cleanlab's quality of each decision."""
    from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class

    probe = OneVsRestClassifier(
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=100))
    )
    folds = KFold(3, shuffle=True, random_state=0)
    probabilities = cross_val_predict(probe, features, has, cv=folds, method="predict_proba")
    labels = [np.flatnonzero(row).tolist() for row in has]
    quality = get_label_quality_scores_per_class(labels, probabilities)
    return 1 - np.asarray(quality, np.float64)


def describe(p_wrong: Numbers, is_wrong: Bools, *, counts: bool) -> str:
    """What a ranking finds, in a line."""
    text = (
        f"AUROC {roc_auc_score(is_wrong, p_wrong):.3f}, average precision "
        f"{average_precision_score(is_wrong, p_wrong):.3f}"
    )
    if not counts:
        return text
    sure = p_wrong > 0.5  # noqa: PLR2004 - more likely than not
    precision = is_wrong[sure].mean() if sure.any() else float("nan")
    return (
        f"{text}; {is_wrong.sum()} errors, {p_wrong.sum():.0f} expected; {sure.sum()} above 1/2, "
        f"{precision:.0%} of them errors"
    )


def main() -> None:
    """Plants errors in both sets of images, and prints a line for each method and direction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--composites", type=int, default=3000)
    parser.add_argument("--backbone", default="builtin")
    arguments = parser.parse_args()
    if not (SHARED / "data/cifar100_test.parquet").exists():
        sys.exit(f"skipped: CIFAR-100 is not in {SHARED} (DIFFICULTY_SHARED)")
    encoder = ds.backbone(arguments.backbone)
    photos, classes = photographs(SHARED, arguments.images)
    sets = [
        Tagged("fine and coarse classes", photos, one_hot(classes)),
        composites(SHARED, arguments.composites),
    ]
    for tagged in sets:
        has = plant(tagged.right)
        features = encoder.encode(tagged.images)
        is_wrong = has != tagged.right
        for method, judge in (("difficulty tags", ours), ("cleanlab", cleanlabs)):
            start = time.process_time()
            p_wrong = judge(features, has)
            seconds = time.process_time() - start
            for kind, of in (("wrong", has), ("missing", ~has)):
                line = describe(p_wrong[of], is_wrong[of], counts=judge is ours)
                print(f"{tagged.name}, {kind}, {method} ({seconds:.0f} s): {line}", flush=True)


if __name__ == "__main__":
    main()
