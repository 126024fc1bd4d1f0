"""Wrong labels found among 5 to 5,000 images per class, by each shrinkage rule and by a probe.

    difficulty extract 'cifar10_train_*.parquet' --backbone builtin --id-column index --out train
    python -m benchmarks.few_samples train

5 % of the labels are replaced by others at random, in so many draws that 250 are wrong in all, but
at least in three. Printed is the mean AUROC of finding them, with half its 95 % interval, by
columns of score files under each rule of shrinkage and by a logistic regression that is
cross-validated in five parts (probability of the label; its penalty is chosen by the likelihood of
the labels left out, as the strength of the ridge is). `--classes 20 --sizes 50` takes other sizes.
At the end is how many labels of all draws are called wrong, and how many of these are right.
"""

import argparse
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from benchmarks.linear_probe import read_features
from difficulty_service.gaussians.fit_options import Shrinkage
from difficulty_service.interface.score import score
from difficulty_service.scores.tiers import ALMOST_CERTAIN, PROBABLE

SIZES = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
RULES: tuple[Shrinkage, ...] = ("auto", "none", "ledoit-wolf")
COLUMNS = ("label_margin", "rmd_loo")
SUSPICION = ("suspicion", "p_wrong")
TIERS = {"probably wrong": PROBABLE, "almost certainly wrong": ALMOST_CERTAIN}
WRONG = 0.05
WRONG_IN_ALL = 250
FEWEST_DRAWS = 3
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


def columns(features: Tensor, labels: Tensor, rule: Shrinkage) -> dict[str, NDArray[np.float64]]:
    """Columns of a score file, with those of SUSPICION under the default rule of shrinkage."""
    scorer, names = ("suspicion", (*COLUMNS, *SUSPICION)) if rule == "auto" else ("rmd", COLUMNS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there are few samples
        found = score(features, labels, scorers=(scorer,), shrinkage=rule)
    return {name: found[name].to_numpy() for name in names}


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


def measure(sample: Draw, seed: int, accused: Counter[str]) -> dict[str, float]:
    """AUROC of each way to score one sample; counts the labels called wrong, and right ones."""
    features, labels, wrong = sample
    found = {}
    for rule in RULES:
        scores = columns(features, labels, rule)
        p_wrong = scores.pop("p_wrong", np.zeros(len(labels)))
        for tier, least in TIERS.items():
            accused[tier] += int((p_wrong > least).sum())
            accused[f"{tier}, though right"] += int((p_wrong > least)[~wrong].sum())
        for column, values in scores.items():
            # What cannot be scored, such as where a covariance has no inverse, is not suspected.
            found[f"{rule} {column}"] = roc_auc_score(wrong, np.nan_to_num(values, nan=-1e9))
    if len(labels) <= LARGEST_PROBE and min(labels.bincount()) > 1:  # in two parts at least
        found["probe"] = roc_auc_score(wrong, probe(features, labels, seed))
    return found


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of its 95 % interval."""
    return f"{np.mean(values):.3f} ± {1.96 * np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


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
        results, accused = [], Counter[str]()
        wrong_in_one = max(1, round(WRONG * each * arguments.classes))
        for seed in range(max(FEWEST_DRAWS, math.ceil(WRONG_IN_ALL / wrong_in_one))):
            sample = draw(features, labels, arguments.classes, each, seed)
            if sample is not None:
                results.append(measure(sample, seed, accused))
        names = set[str].intersection(*map(set, results))
        means = {
            name: interval([result[name] for result in results])
            for name in results[0]
            if name in names
        }
        row = "  ".join(f"{name} {value}" for name, value in {**means, **accused}.items())
        print(f"{each:5} per class, {len(results)} draws  {row}", flush=True)


if __name__ == "__main__":
    main()
