"""Whether a ridge probe, or a blend with one, agrees with people better than `agree` does.

    python -m benchmarks.studies.blends

The ridge probe is a regression of the classes on the unit vectors of `agree`, in closed form, each
image left out of the fit by the diagonal of the hat matrix. The multinomial probe is that of
`ambiguity`. Penalties and scales are those under which the labels are likeliest. A blend is the sum
of log-probabilities, or half of either score, divided by its standard deviation ("halves"). The
score is the log-odds against the label, and what people think is the entropy of their votes for the
10,000 test images of CIFAR-10. What a score has more than `agree` comes with the 95 % interval over
resampled images, the same for both. Features are in runs/evidence.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp
from scipy.stats import entropy, spearmanr

from benchmarks.evidence.data import (
    BACKBONES,
    NAMES,
    Study,
    extract,
    read_columns,
    read_images,
    require_data,
)
from benchmarks.evidence.measures import spearman_difference
from benchmarks.real_data import shared_folder
from difficulty_service.features.store import open_store
from difficulty_service.gaussians.feature_map import FeatureMap
from difficulty_service.gaussians.label_rule import Rule
from difficulty_service.gaussians.products import Workspace
from difficulty_service.scorers.linear_probe import logits_left_out
from difficulty_service.scorers.suspicion import POSTERIORS
from difficulty_service.scoring.fit_store import fit_store_posteriors

SOURCE = "cifar10-test"
PENALTIES = 10.0 ** np.arange(-4, 2.1, 0.5)
PHOTO_BACKBONES = (*BACKBONES, "builtin-photos")
SCALES = np.geomspace(0.02, 60, 100)

Numbers = NDArray[np.float64]
Labels = NDArray[np.int64]


def likelihood(logits: Numbers, labels: Labels) -> float:
    """Mean log-probability of the labels."""
    return float(log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean())


def tempered(logits: Numbers, labels: Labels) -> Numbers:
    """Log-probabilities at the scale under which the labels are likeliest."""
    scale = max(SCALES, key=lambda each: likelihood(each * logits, labels))
    log_probabilities: Numbers = log_softmax(scale * logits, axis=1)
    return log_probabilities


def log_odds(logits: Numbers, labels: Labels) -> Numbers:
    """Log-odds of all other classes together against the label. Shape (samples,)."""
    rows = np.arange(len(labels))
    others = logits.copy()
    others[rows, labels] = -np.inf
    odds: Numbers = logsumexp(others, axis=1) - logits[rows, labels]
    return odds


def ridge_probe(points: Numbers, labels: Labels) -> Numbers:
    """Log-probabilities of a ridge regression without the sample, at its best penalty.

    Args:
        points: Features. Shape (samples, dim).
        labels: Shape (samples,).

    Returns:
        Shape (samples, classes).
    """
    targets = np.eye(labels.max() + 1)[labels]
    mean = targets.mean(axis=0)
    centred = points - points.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    rotated = centred @ vectors
    coefficients = rotated.T @ (targets - mean)
    found = []
    for penalty in PENALTIES:
        inverse = 1 / (values + penalty * values.mean())
        fitted = (rotated * inverse) @ coefficients + mean
        leverage = (rotated**2 @ inverse + 1 / len(labels))[:, None]
        left_out = (fitted - leverage * targets) / (1 - leverage)
        found.append(tempered(left_out, labels))
    return max(found, key=lambda each: likelihood(each, labels))


def multinomial_probe(features: NDArray[np.float32], labels: Labels) -> Numbers:
    """Log-probabilities of the probe of `ambiguity`. Shape (samples, classes)."""
    rows, targets = torch.from_numpy(features), torch.from_numpy(labels)
    judged = torch.arange(len(rows))
    logits = logits_left_out(rows, targets, int(targets.max()) + 1, judged)
    log_probabilities: Numbers = log_softmax(logits.double().numpy(), axis=1)
    return log_probabilities


def gaussians(rule: Rule, feature_map: FeatureMap, features: Numbers, labels: Labels) -> Numbers:
    """Log-probabilities by class densities without the sample. Shape (samples, classes)."""
    found = []
    for start in range(0, len(features), 1000):
        block = torch.from_numpy(features[start : start + 1000]).float()
        mapped = feature_map(block, Workspace())[:, : len(rule.densities.mean)]
        own = torch.from_numpy(labels[start : start + 1000])
        found += [each.double().numpy().copy() for _, each in rule.log_densities(mapped, own)]
    return tempered(np.concatenate(found), labels)


def compare(study: Study, backbone: str) -> None:
    """Prints a row for every score of the features of a backbone."""
    images = read_images(study, SOURCE, backbone)
    features, labels = images.features.astype(np.float64), images.labels
    counts = read_columns(study, SOURCE, ["human_counts"])["human_counts"].to_pylist()
    votes = entropy(np.array(counts, dtype=float)[images.positions], axis=1)
    store = open_store(study.store(SOURCE, backbone))
    fitted = fit_store_posteriors(store, POSTERIORS, torch.float32)
    if fitted is None or fitted.agree is None or fitted.suspicion is None:
        sys.exit("the posteriors lack one of their scorers")
    centred = features - fitted.feature_map.centre.double().numpy()
    ridge = ridge_probe(centred / np.linalg.norm(centred, axis=1, keepdims=True), labels)
    agree = gaussians(fitted.agree, fitted.feature_map, features, labels)
    landmarks = gaussians(fitted.suspicion, fitted.suspicion_map, features, labels)
    multinomial = multinomial_probe(images.features, labels)
    scores = {
        "agree": agree,
        "agree with landmarks": landmarks,
        "ridge probe": ridge,
        "agree and ridge probe": agree + ridge,
        "landmarks and ridge probe": landmarks + ridge,
        "agree, landmarks and ridge probe": agree + landmarks + ridge,
        "multinomial probe": multinomial,
        "agree and multinomial probe": agree + multinomial,
    }
    plain = log_odds(tempered(agree, labels), labels)
    odds = {name: log_odds(tempered(each, labels), labels) for name, each in scores.items()}
    for probe in ("ridge probe", "multinomial probe"):
        odds[f"agree and {probe}, halves"] = plain / plain.std() + odds[probe] / odds[probe].std()
    for name, score in odds.items():
        correlation = spearmanr(score, votes).statistic
        more, width = spearman_difference(score, plain, votes)
        logits = scores.get(name)
        likely = "" if logits is None else f"{likelihood(tempered(logits, labels), labels):.3f}"
        print(
            f"| {backbone} | {name} | {likely} | {correlation:.4f} | {more:+.4f} ± {width:.4f} |",
            flush=True,
        )


def main() -> None:
    """Extracts what is missing and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--backbones", nargs="+", choices=NAMES, default=list(PHOTO_BACKBONES))
    parser.add_argument("--images", type=int, help="number of images; default: all")
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder(), arguments.images)
    require_data(study)
    print("| backbone | score | log-likelihood of the labels | correlation | more than `agree` |")
    print("| --- | --- | --- | --- | --- |")
    for backbone in arguments.backbones:
        extract(study, SOURCE, backbone)
        compare(study, backbone)


if __name__ == "__main__":
    main()
