"""Other packages and published methods, on the same features and as well tuned as ours.

A rate, a penalty or a number of neighbours is the one under which given labels that were held out
are likeliest. Cuts are those that a package or a paper proposes.
"""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from benchmarks.evidence.probes import best_training, cross_validated, standardise, train
from benchmarks.evidence.samples import Samples, Verdict

NEIGHBOURS = (10, 20, 50, 100)
VOTERS = 10
"""Neighbours that vote in SimiFeat."""

QUERIES = 2048
"""Samples whose neighbours are looked for at a time."""

THRESHOLD_PERCENTILE = 0.99
"""Of the margins of samples with an invented class, in the rule of Pleiss et al. (2020)."""

SHRINKAGES = (None, "auto", 0.1, 0.5, 0.9)
HELD_OUT = 0.1


def cleanlab_scores(samples: Samples) -> Verdict:
    """Cleanlab on a cross-validated logistic probe; the cut is that of `find_label_issues`."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    rows, labels = standardise(samples.features), torch.from_numpy(samples.labels)
    probabilities, penalty = cross_validated(rows, labels, samples.classes)
    predicted = probabilities.double().numpy()
    predicted /= predicted.sum(axis=1, keepdims=True)
    quality = {
        name: get_label_quality_scores(samples.labels, predicted, method=name)
        for name in ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
    }
    issues = find_label_issues(samples.labels, predicted, n_jobs=1)
    return Verdict(
        {f"cleanlab {name}": -values for name, values in quality.items()},
        {f"cleanlab {name}": issues for name in ("self_confidence", "normalized_margin")},
        {"penalty": penalty},
    )


def training_dynamics(samples: Samples) -> Verdict:
    """AUM (Pleiss et al. 2020), EL2N (Paul et al. 2021) and forgetting (Toneva et al. 2019).

    One run of a linear probe gives all three, and two runs with an invented class the cut of AUM.
    """
    rows, labels = standardise(samples.features), torch.from_numpy(samples.labels)
    rate, epochs = best_training(rows, labels, samples.classes)
    run = train(rows, labels, samples.classes, rate)
    scores = {
        "AUM": -run.margins,
        "EL2N": run.error_norms[epochs - 1],
        "forgetting": run.forgotten,
    }
    return Verdict(
        {name: values.double().numpy() for name, values in scores.items()},
        {"AUM": _below_invented_class(rows, labels, samples.classes, rate).numpy()},
        {"rate": rate, "epochs": epochs},
    )


def _below_invented_class(rows: Tensor, labels: Tensor, classes: int, rate: float) -> Tensor:
    """Samples whose margin is below that of most that were given a class that does not exist."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))
    size = len(labels) // (classes + 1)
    flagged = torch.zeros(len(labels), dtype=torch.bool)
    for number in range(2):
        invented = order[number * size : (number + 1) * size]
        changed = labels.clone()
        changed[invented] = classes
        margins = train(rows, changed, classes + 1, rate).margins
        threshold = margins[invented].quantile(THRESHOLD_PERCENTILE)
        judged = torch.ones(len(labels), dtype=torch.bool)
        judged[invented] = False
        if number:  # all others were judged by the first run
            judged[:] = False
            judged[order[:size]] = True
        flagged |= judged & (margins <= threshold)
    return flagged


def nearest(features: NDArray[np.float32], count: int) -> tuple[Tensor, Tensor]:
    """Cosines and places of each sample's nearest others. Shape (samples, count) each."""
    rows = torch.from_numpy(features)
    rows = F.normalize(rows - rows.mean(dim=0), dim=1)
    cosines, places = [], []
    for start in range(0, len(rows), QUERIES):
        similar = rows[start : start + QUERIES] @ rows.T
        own = torch.arange(len(similar))
        similar[own, own + start] = -torch.inf
        found = similar.topk(count, dim=1)
        cosines.append(found.values)
        places.append(found.indices)
    return torch.cat(cosines), torch.cat(places)


def neighbour_votes(samples: Samples) -> Verdict:
    """Share of the nearest neighbours with another label, and the vote of SimiFeat.

    Zhu et al. (2022) rank by the cosine between the label and the neighbours' labels, each weighted
    by its similarity; their cut is the vote. The neighbours' own number is chosen by likelihood.
    """
    labels = torch.from_numpy(samples.labels)
    most = min(max(NEIGHBOURS), len(labels) - 1)
    cosines, places = nearest(samples.features, most)
    votes = labels[places]
    best, likeliest, shares = NEIGHBOURS[0], -torch.inf, torch.empty(0)
    for count in NEIGHBOURS:
        agreeing = (votes[:, :count] == labels[:, None]).float().sum(dim=1)
        likelihood = ((agreeing + 1) / (min(count, most) + samples.classes)).log().mean().item()
        if likelihood > likeliest:
            best, likeliest, shares = count, likelihood, agreeing / min(count, most)
    counts = F.one_hot(votes[:, :best], samples.classes).sum(dim=1)
    soft = torch.zeros(len(labels), samples.classes)
    soft.scatter_add_(1, votes[:, :VOTERS], cosines[:, :VOTERS].clamp(min=0))
    soft = F.normalize(soft, dim=1)
    return Verdict(
        {
            "kNN": (1 - shares).double().numpy(),
            "SimiFeat vote": (1 - soft.gather(1, labels[:, None]).squeeze(1)).double().numpy(),
        },
        {
            "kNN": (counts.argmax(dim=1) != labels).numpy(),
            "SimiFeat vote": (soft.argmax(dim=1) != labels).numpy(),
        },
        {"neighbours": best},
    )


def pytorch_ood_scores(samples: Samples) -> Verdict:
    """pytorch-ood's detectors as they are, which see the image alone; and its RMD with labels."""
    from pytorch_ood.detector import RMD, Mahalanobis

    rows, labels = torch.from_numpy(samples.features), torch.from_numpy(samples.labels)
    relative = RMD(encoder=None).fit_features(rows, labels)
    plain = Mahalanobis(encoder=None).fit_features(rows, labels)
    own = torch.empty(len(rows))
    for label in labels.unique():  # its public method takes the nearest class, not the own one
        of_class = rows[labels == label]
        distances = relative._class_score(of_class, label)
        own[labels == label] = distances - relative._background_score(of_class)
    return Verdict(
        {
            "pytorch-ood Mahalanobis": plain.predict_features(rows).double().numpy(),
            "pytorch-ood RMD": relative.predict_features(rows).double().numpy(),
            "pytorch-ood RMD, own label": own.double().numpy(),
        }
    )


def discriminant(samples: Samples) -> Verdict:
    """scikit-learn's linear discriminant analysis; its cut is its prediction."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    order = np.random.default_rng(3).permutation(len(samples.labels))
    size = round(HELD_OUT * len(order))
    held_out, seen = order[:size], order[size:]
    # A class without a sample outside the held-out ones cannot be predicted.
    held_out = held_out[np.isin(samples.labels[held_out], samples.labels[seen])]
    best, chosen = -np.inf, SHRINKAGES[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for shrinkage in SHRINKAGES:
            model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
            model.fit(samples.features[seen], samples.labels[seen])
            logarithms = model.predict_log_proba(samples.features[held_out])
            places = np.searchsorted(model.classes_, samples.labels[held_out])
            likelihood = np.maximum(logarithms[np.arange(len(places)), places], -1e3).mean()
            if likelihood > best:
                best, chosen = likelihood, shrinkage
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=chosen)
        model.fit(samples.features, samples.labels)
    decision = torch.from_numpy(model.decision_function(samples.features)).double()
    given = torch.from_numpy(np.searchsorted(model.classes_, samples.labels))[:, None]
    # Log-odds against the label: unlike probabilities, they have no ties at 0 and 1.
    others = decision.scatter(1, given, -torch.inf).logsumexp(dim=1)
    scores = (others - decision.gather(1, given).squeeze(1)).numpy()
    name = "scikit-learn LDA"
    flagged = (decision.argmax(dim=1) != given.squeeze(1)).numpy()
    return Verdict({name: scores}, {name: flagged}, {"shrinkage": chosen})


def local_outliers(samples: Samples) -> Verdict:
    """scikit-learn's local outlier factor among the samples with the same label."""
    from sklearn.neighbors import LocalOutlierFactor

    scores = np.zeros(len(samples.labels))
    flagged = np.zeros(len(samples.labels), dtype=bool)
    for label in np.unique(samples.labels):
        rows = np.flatnonzero(samples.labels == label)
        if len(rows) < 3:  # noqa: PLR2004 - too few to compare densities
            continue
        model = LocalOutlierFactor(n_neighbors=min(20, len(rows) - 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            flagged[rows] = model.fit_predict(samples.features[rows]) < 0
        scores[rows] = -model.negative_outlier_factor_
    name = "scikit-learn LOF"
    return Verdict({name: scores}, {name: flagged})
