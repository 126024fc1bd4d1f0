"""The consensus of several labels per image, beside other packages that make one.

    python -m benchmarks.evidence.annotators [--folder runs/annotators] [--limit 10000] [--seeds 3]

Writes `annotators.csv`: how often the consensus is right, what its probability says of that (log
loss and expected calibration error of "the consensus is right", AUROC of the probability for
consensus labels that are wrong, the share of images of at least 95 % and how many of these are
right), and Spearman's correlation of error rates of annotators with the
true ones where there are many. Majority vote, Dawid-Skene and MACE see labels alone; CROWDLAB sees
predicted probabilities, of a cross-validated logistic probe or ours, each sample left out. Rows of
crowd-kit need `pip install crowd-kit==1.4.2`, and are left out without it.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from benchmarks.evidence.data import Study, extract, read_columns, read_images, require_data
from benchmarks.evidence.page import DOCS, TABLES
from benchmarks.evidence.probes import cross_validated, standardise
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.analyses.annotators.given_labels import GivenLabels, majority
from difficulty_service.analyses.annotators.scores import (
    SURE,
    ConsensusOptions,
    Source,
    judge_annotators,
)
from difficulty_service.datasets.label_tables import LabelColumns, open_label_table
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, Marks
from difficulty_service.scoring.class_evidence import witness_of_features
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_in_memory
from difficulty_service.settings.options import ScorerOptions

CLASSES = 10
SMALL = 1_000
ANNOTATORS, LABELS_PER_IMAGE = 50, 3
MOST_WRONG = 0.5
VERIFIED = 200
BINS = 15
LEAST = 1e-6
"""Smallest probability of being right that counts in the log loss, one of a confident mistake."""

COLUMNS = (
    *("dataset", "images", "draws", "method", "accuracy", "minus_majority", "log_loss", "ece"),
    *("auroc", "sure", "sure_right", "annotators_spearman", "seconds", "machine"),
)


@dataclass(frozen=True)
class Voted:
    """Images with the labels of annotators.

    Attributes:
        features: Shape (images, dim).
        right: Shape (images,).
        triples: Image, annotator and class of each label. Shape (labels, 3).
        rates: True error rate of each annotator; empty where there are few. Shape (annotators,).
    """

    features: NDArray[np.float32]
    right: NDArray[np.int64]
    triples: NDArray[np.int64]
    rates: NDArray[np.float64]

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each label, as crowd-kit reads it."""
        return pd.DataFrame(self.triples, columns=["task", "worker", "label"])

    @property
    def majority(self) -> NDArray[np.int64]:
        """The first of the most frequent labels; a class of its own sample where it has none."""
        labels = GivenLabels.of(
            torch.from_numpy(self.triples), len(self.right), self.num_annotators, CLASSES
        )
        return majority(labels, torch.full((len(self.right),), -1)).clamp(min=0).numpy()

    @property
    def num_annotators(self) -> int:
        """Number of annotators."""
        return int(self.triples[:, 1].max()) + 1

    @property
    def has_label(self) -> NDArray[np.bool_]:
        """Whether each image has a label. Shape (images,)."""
        return np.isin(np.arange(len(self.right)), self.triples[:, 0])


@dataclass(frozen=True)
class Consensus:
    """What a method says. Shapes (images,) and (annotators,).

    Attributes:
        confidence: How sure it is of its consensus.
        rates: Larger for annotators who err more; None where it says nothing of them.
        judged: Images that it is measured on; None for all with a label.
    """

    classes: NDArray[np.int64]
    confidence: NDArray[np.float64]
    rates: NDArray[np.float64] | None = None
    judged: NDArray[np.bool_] | None = None

    @classmethod
    def of_probabilities(
        cls, probabilities: NDArray[np.float64], rates: NDArray[np.float64] | None = None
    ) -> "Consensus":
        """The likeliest classes."""
        return cls(probabilities.argmax(axis=1), probabilities.max(axis=1), rates)


def ours(voted: Voted, *, of_scores: bool = False, verified: int = 0, seed: int = 0) -> Consensus:
    """`difficulty annotators`, of features or scores; some random images may be verified."""
    features = read_arrays(voted.features, voted.majority, None)
    source: Source = features
    if of_scores:
        options = ScorerOptions(scorers=("rmd", "suspicion"))
        source = score_in_memory(features, fit_store(features, FitOptions()), options)
    chosen = np.random.default_rng(seed).choice(len(voted.right), verified, replace=False)
    marks = [MarkedSample(str(row), Mark.RELABEL, str(voted.right[row])) for row in chosen.tolist()]
    table = pa.table(
        {
            "sample_id": [str(row) for row in voted.triples[:, 0].tolist()],
            "annotator": [f"{number:03}" for number in voted.triples[:, 1].tolist()],
            "label": [str(label) for label in voted.triples[:, 2].tolist()],
        }
    )
    columns = LabelColumns()
    report = judge_annotators(
        source, open_label_table(table), columns, ConsensusOptions(marks=Marks.of(marks))
    )
    names = np.array(report.annotators["annotator"].to_pylist()).argsort()
    consensus = report.samples["consensus_label"].fill_null("-1").to_numpy().astype(np.int64)
    confidence = report.samples["p_consensus"].fill_null(0).to_numpy()
    judged = voted.has_label & ~np.isin(np.arange(len(voted.right)), chosen)
    rates = report.annotators["error_rate"].to_numpy()[names]
    return Consensus(consensus, confidence, rates, judged)


def vote(voted: Voted) -> Consensus:
    """The class that most labels name, with the share of these."""
    counts = np.zeros((len(voted.right), CLASSES))
    np.add.at(counts, (voted.triples[:, 0], voted.triples[:, 2]), 1)
    shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    agreed = voted.majority
    wrong = agreed[voted.triples[:, 0]] != voted.triples[:, 2]
    given = np.bincount(voted.triples[:, 1], minlength=voted.num_annotators)
    rates = np.bincount(voted.triples[:, 1], wrong, voted.num_annotators) / given
    return Consensus(agreed, shares[np.arange(len(agreed)), agreed], rates)


def dawid_skene(voted: Voted) -> Consensus:
    """Dawid and Skene (1979), by crowd-kit."""
    from crowdkit.aggregation import DawidSkene

    model = DawidSkene(n_iter=100).fit(voted.frame)
    probabilities = _rows(model.probas_, voted)
    right = probabilities[voted.triples[:, 0], voted.triples[:, 2]]
    given = np.bincount(voted.triples[:, 1])
    rates = np.bincount(voted.triples[:, 1], 1 - right) / given
    return Consensus.of_probabilities(probabilities, rates)


def mace(voted: Voted) -> Consensus:
    """MACE (Hovy et al. 2013), by crowd-kit."""
    from crowdkit.aggregation import MACE

    model = MACE(random_state=0).fit(voted.frame)
    # Its workers are in the order in which the labels name them.
    _, workers = pd.factorize(voted.frame["worker"])
    spamming = pd.Series(np.asarray(model.spamming_)[:, 0], workers).sort_index()
    return Consensus.of_probabilities(_rows(model.probas_, voted), spamming.to_numpy())


def _rows(probabilities: pd.DataFrame, voted: Voted) -> NDArray[np.float64]:
    """Probabilities of all classes at all images. Shape (images, classes)."""
    every = probabilities.reindex(index=range(len(voted.right)), columns=range(CLASSES))
    return every.fillna(0).to_numpy()


def probe(voted: Voted) -> NDArray[np.float64]:
    """Cross-validated probabilities of a logistic probe of the majority labels."""
    found, _ = cross_validated(
        standardise(voted.features), torch.from_numpy(voted.majority), CLASSES
    )
    return found.double().numpy()


def our_features(voted: Voted) -> NDArray[np.float64]:
    """Our probabilities of the classes by features alone, each image left out of the fit."""
    source = read_arrays(voted.features, voted.majority, None)
    with witness_of_features(source, torch.from_numpy(voted.majority), None) as witness:
        everything = witness.evidence(slice(0, len(voted.right))).double()
        return (witness.scale * everything + witness.log_prior).softmax(dim=1).numpy()


def crowdlab(voted: Voted, predict: Callable[[Voted], NDArray[np.float64]]) -> Consensus:
    """CROWDLAB (Goh et al. 2022), by cleanlab."""
    from cleanlab.multiannotator import get_label_quality_multiannotator

    predicted = predict(voted)
    predicted = predicted / predicted.sum(axis=1, keepdims=True)
    kept = voted.has_label
    table = voted.frame.pivot_table(index="task", columns="worker", values="label")
    found = get_label_quality_multiannotator(table, predicted[kept], verbose=False)
    classes = np.full(len(voted.right), -1)
    confidence = np.zeros(len(voted.right))
    quality = found["label_quality"]
    classes[kept] = quality["consensus_label"].to_numpy()
    confidence[kept] = quality["consensus_quality_score"].to_numpy()
    statistics = found["annotator_stats"]["annotator_quality"].sort_index()
    return Consensus(classes, confidence, 1 - statistics.to_numpy(dtype=np.float64))


METHODS: Mapping[str, Callable[[Voted], Consensus]] = {
    "difficulty": ours,
    "difficulty, of scores": lambda voted: ours(voted, of_scores=True),
    f"difficulty, {VERIFIED} verified": lambda voted: ours(voted, verified=VERIFIED),
    "majority vote": vote,
    "Dawid-Skene (crowd-kit)": dawid_skene,
    "MACE (crowd-kit)": mace,
    "CROWDLAB (cleanlab), probe": lambda voted: crowdlab(voted, probe),
    "CROWDLAB (cleanlab), our probabilities": lambda voted: crowdlab(voted, our_features),
}


def measure(voted: Voted, found: Consensus) -> dict[str, float]:
    """The numbers of a row but the time."""
    judged = voted.has_label if found.judged is None else found.judged
    right = found.classes[judged] == voted.right[judged]
    confidence = found.confidence[judged]
    chances = np.where(right, confidence, 1 - confidence).clip(LEAST)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        abs(right[bins == each].mean() - confidence[bins == each].mean()) * (bins == each).mean()
        for each in np.unique(bins)
    ]
    measured = {
        "accuracy": right.mean(),
        "minus_majority": right.mean() - (voted.majority == voted.right)[judged].mean(),
        "log_loss": -np.log(chances).mean(),
        "ece": sum(gaps),
        "auroc": roc_auc_score(right, confidence),
        "sure": (confidence >= SURE).mean(),
        "sure_right": right[confidence >= SURE].mean() if (confidence >= SURE).any() else np.nan,
    }
    if len(voted.rates) and found.rates is not None:
        measured["annotators_spearman"] = spearmanr(voted.rates, found.rates).statistic
    return {name: float(value) for name, value in measured.items()}


def some(voted: Voted, size: int, seed: int) -> Voted:
    """Some of the images with all their labels."""
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(len(voted.right), min(size, len(voted.right)), replace=False))
    kept = np.isin(voted.triples[:, 0], rows)
    triples = voted.triples[kept].copy()
    triples[:, 0] = np.searchsorted(rows, triples[:, 0])
    return replace(voted, features=voted.features[rows], right=voted.right[rows], triples=triples)


def of_columns(votes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Triples of a label of each annotator, shape (images, annotators), for each image."""
    images, annotators = np.indices(votes.shape).reshape(2, -1)
    return np.stack([images, annotators, votes.ravel()], axis=1)


def cifar10n(study: Study) -> Voted:
    """The three labels that people gave to training images, by who was asked first to third."""
    images = read_images(study, "cifar10-train", "builtin")
    names = [f"noisy_rand{number}" for number in (1, 2, 3)]
    table = read_columns(study, "cifar10-train", names)
    votes = np.stack([table[name].to_numpy()[images.positions] for name in names], axis=1)
    return Voted(images.features, images.labels, of_columns(votes.astype(np.int64)), np.empty(0))


def cifar10h(study: Study) -> Voted:
    """Three of the about fifty votes on each test image; nobody knows who gave which."""
    images = read_images(study, "cifar10-test", "builtin")
    table = read_columns(study, "cifar10-test", ["human_counts"])
    counts = np.stack(table["human_counts"].to_numpy(zero_copy_only=False))[images.positions]
    random = np.random.default_rng(0)
    votes = np.stack(
        [
            random.permutation(np.repeat(np.arange(CLASSES), each))[:LABELS_PER_IMAGE]
            for each in counts
        ]
    )
    return Voted(images.features, images.labels, of_columns(votes), np.empty(0))


def planted(study: Study) -> Voted:
    """Annotators who err by chance, each at a rate of their own and on images of their own."""
    images = read_images(study, "cifar10-train", "builtin")
    random = np.random.default_rng(1)
    rates = random.uniform(0.02, MOST_WRONG, ANNOTATORS)
    number = len(images.labels)
    who = np.stack([random.permutation(ANNOTATORS)[:LABELS_PER_IMAGE] for _ in range(number)])
    wrong = random.random(who.shape) < rates[who]
    votes = (images.labels[:, None] + wrong * random.integers(1, CLASSES, who.shape)) % CLASSES
    image = np.repeat(np.arange(number), LABELS_PER_IMAGE)
    triples = np.stack([image, who.ravel(), votes.ravel()], axis=1)
    return Voted(images.features, images.labels, triples, rates)


SETS = {
    "CIFAR-10N, three labels": cifar10n,
    "CIFAR-10H, three votes": cifar10h,
    f"CIFAR-10, {ANNOTATORS} planted annotators": planted,
}


def rows_of(name: str, draws: list[Voted]) -> Iterator[Row]:
    """The rows of all methods: means over the draws."""
    for method, judge in METHODS.items():
        if "crowd-kit" in method and find_spec("crowdkit") is None:
            continue
        measured, started = [], time.perf_counter()
        for voted in draws:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a user of each package should know
                measured.append(measure(voted, judge(voted)))
        seconds = (time.perf_counter() - started) / len(draws)
        row = {"dataset": name, "images": str(len(draws[0].right)), "draws": str(len(draws))}
        row |= {"method": method, "seconds": f"{seconds:.1f}", "machine": machine()}
        for column in measured[0]:
            value = np.mean([each[column] for each in measured])
            row[column] = "" if np.isnan(value) else f"{value:.4f}"
        yield row


def main() -> None:
    """Judges every set of labels by every method, then writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/annotators"))
    parser.add_argument("--limit", type=int, default=10_000, help="images of each dataset")
    parser.add_argument("--seeds", type=int, default=3, help=f"draws of {SMALL:,} images")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    arguments = parser.parse_args()
    shared = shared_folder()
    study = Study(arguments.folder, shared, arguments.limit)
    require_data(study)
    for source in ("cifar10-train", "cifar10-test"):
        extract(study, source, "builtin")
    if find_spec("crowdkit") is None:
        print("crowd-kit is not installed: its rows are left out", flush=True)
    rows: list[Row] = []
    for name, read in SETS.items():
        voted = read(study)
        for draws in (
            [voted],
            [some(voted, SMALL, seed) for seed in range(arguments.seeds)],
        ):
            for row in rows_of(name, draws):
                rows.append(row)
                print(", ".join(row.values()), flush=True)
    write_rows(arguments.docs / TABLES / "annotators.csv", COLUMNS, rows)


if __name__ == "__main__":
    main()
