"""Wrong labels found among 5 to 5,000 images per class, by each shrinkage rule and by a probe.

    difficulty extract 'cifar10_train_*.parquet' --backbone builtin --id-column index --out train
    python benchmarks/few_samples.py train

5 % of the labels are replaced by others at random, three times. Printed is the mean AUROC of
finding them, by `label_margin` and `rmd` of each rule and by a logistic regression that is
cross-validated in five parts (probability of the label; its penalty is chosen by the likelihood of
the labels left out, as the strength of the ridge is). `--classes 20 --sizes 50` takes other sizes.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from linear_probe import read_features
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.statistics.fit_options import FitOptions, Shrinkage
from difficulty_service.statistics.fitting import fit
from difficulty_service.statistics.leave_one_out import compare_left_out

SIZES = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
RULES: tuple[Shrinkage, ...] = ("auto", "none", "ledoit-wolf")
SEEDS = 3
WRONG = 0.05
PENALTIES = (1e-3, 1e-2, 1e-1)
LARGEST_PROBE = 2000  # samples; larger ones take minutes

Draw = tuple[Tensor, Tensor, NDArray[np.bool_]]


def draw(features: Tensor, labels: Tensor, classes: int, each: int, seed: int) -> Draw | None:
    """Some samples of some classes, with labels of which some are wrong, and which those are."""
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(np.unique(labels))[:classes]
    positions = [np.flatnonzero(labels == label) for label in chosen]
    if len(chosen) < classes or min(map(len, positions)) < each:
        return None
    rows = np.concatenate([generator.choice(own, each, replace=False) for own in positions])
    given = np.repeat(np.arange(classes), each)
    wrong = np.zeros(len(given), dtype=bool)
    wrong[generator.choice(len(given), max(1, round(WRONG * len(given))), replace=False)] = True
    given[wrong] = (given[wrong] + generator.integers(1, classes, wrong.sum())) % classes
    return features[rows], torch.from_numpy(given), wrong


def scores(features: Tensor, labels: Tensor, shrinkage: Shrinkage) -> tuple[Tensor, Tensor]:
    """The margin as score files have it, and RMD."""
    gaussians = fit(features, labels, int(labels.max()) + 1, FitOptions(shrinkage))
    distances = relative_mahalanobis(gaussians).distances(features, labels)
    margin = distances.label_margin
    if gaussians.within.ridge:
        margin = compare_left_out(gaussians, features, labels, distances.md_agnostic)[1]
    return margin, distances.rmd


def probe(features: Tensor, labels: Tensor, seed: int) -> NDArray[np.float64]:
    """Minus the cross-validated probability of the given label, at the likeliest penalty."""
    parts = StratifiedKFold(min(5, int(labels.bincount().min())), shuffle=True, random_state=seed)
    best, found = np.inf, np.zeros(len(labels))
    for penalty in PENALTIES:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=200))
        probabilities = cross_val_predict(
            model, features.numpy(), labels.numpy(), cv=parts, method="predict_proba"
        )
        loss = log_loss(labels.numpy(), probabilities)
        if loss < best:
            best, found = loss, -probabilities[np.arange(len(labels)), labels.numpy()]
    return found


def measure(sample: Draw, seed: int) -> dict[str, float]:
    """AUROC of each way to score one sample."""
    features, labels, wrong = sample
    found = {}
    for rule in RULES:
        margin, rmd = scores(features, labels, rule)
        found[f"{rule} margin"] = roc_auc_score(wrong, margin)
        found[f"{rule} rmd"] = roc_auc_score(wrong, rmd)
    if len(labels) <= LARGEST_PROBE:
        found["probe"] = roc_auc_score(wrong, probe(features, labels, seed))
    return found


def main() -> None:
    """Prints a row for each number of images per class."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path, nargs="?")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    if arguments.store is None:
        print("skipped: give a store of features, see the text above")
        return
    warnings.simplefilter("ignore", ConvergenceWarning)
    features, labels = read_features(arguments.store)
    features = features.float()
    for each in arguments.sizes:
        results = []
        for seed in range(SEEDS):
            sample = draw(features, labels, arguments.classes, each, seed)
            if sample is not None:
                results.append(measure(sample, seed))
        means = {name: np.mean([result[name] for result in results]) for name in results[0]}
        row = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        print(f"{each:5} per class  {row}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
