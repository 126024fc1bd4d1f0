"""Wrong labels found among few images per class by `label_margin` and by `suspicion`.

    difficulty extract 'cifar10_train_*.parquet' --backbone builtin --id-column index --out train
    python -m benchmarks.suspicion_of_few train [--classes 10] [--sizes 5 10 20] [--draws 20]

5 % of the labels are wrong: replaced by any other one at random, or by one of the two classes whose
means are nearest to that of the right one. Printed are the mean AUROC, the share of wrong labels
among as many most suspicious samples as there are wrong ones, and the mean difference of suspicion
from the margin in both with its 95 % interval over the draws.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.few_samples import columns, draw
from benchmarks.linear_probe import read_features

SIZES = (5, 10, 20, 50, 100)
NEAREST = 2


def confuse(features: Tensor, given: Tensor, wrong: NDArray[np.bool_], seed: int) -> Tensor:
    """Labels in whose order of classes the wrong ones are of classes near the right one."""
    classes = int(given.max()) + 1
    right = torch.arange(classes).repeat_interleave(len(given) // classes)
    means = torch.stack([features[right == label].mean(dim=0) for label in range(classes)])
    near = torch.cdist(means, means).argsort(dim=1)[:, 1 : NEAREST + 1]
    chosen = torch.from_numpy(np.random.default_rng(seed).integers(0, NEAREST, len(right)))
    return torch.where(torch.from_numpy(wrong), near[right, chosen], right)


def quality(wrong: NDArray[np.bool_], values: NDArray[np.float64]) -> tuple[float, float]:
    """AUROC and precision among as many samples as there are wrong labels."""
    ranked = np.nan_to_num(values, nan=-1e9)
    order = np.argsort(-ranked, kind="stable")
    return roc_auc_score(wrong, ranked), wrong[order[: wrong.sum()]].mean()


def measure(features: Tensor, labels: Tensor, wrong: NDArray[np.bool_]) -> tuple[float, ...]:
    """Quality of the margin and of suspicion."""
    found = columns(features, labels, "auto")
    return *quality(wrong, found["label_margin"]), *quality(wrong, found["suspicion"])


def main() -> None:
    """Prints a row for each number of images per class and kind of errors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path, nargs="?")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.store is None:
        print("skipped: give a store of features, see the text above")
        return
    features, labels = read_features(arguments.store)
    features = features.float()
    for each in arguments.sizes:
        for kind in ("random", "confused"):
            found = []
            for seed in range(arguments.draws):
                sample = draw(features, labels, arguments.classes, each, seed)
                if sample is None:
                    continue
                rows, given, wrong = sample
                if kind == "confused":
                    given = confuse(rows, given, wrong, seed)
                found.append(measure(rows, given, wrong))
            results = np.array(found)
            gains = results[:, 2:4] - results[:, :2]
            spread = 1.96 * gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
            margin, top_margin, ours, top_ours = results.mean(axis=0)
            print(
                f"{each:5} per class, {kind:8}  AUROC {margin:.3f} -> {ours:.3f} "
                f"({gains[:, 0].mean():+.3f} +- {spread[0]:.3f})  top {top_margin:.3f} -> "
                f"{top_ours:.3f} ({gains[:, 1].mean():+.3f} +- {spread[1]:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
