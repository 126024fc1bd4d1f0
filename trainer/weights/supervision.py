"""How far the labels of training samples are trusted: weights of the loss, and second labels.

A score file with suspicion holds the probability that each label is right and the likeliest other
class. Either can tell the loss which labels not to believe.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import ConfigError, TrainingError, UnmatchedScores
from difficulty_service.scores.file import read_scores
from trainer.config import LossConfig
from trainer.samples import Samples
from trainer.weights.from_scores import examples_of, positions_of, require_unique

COLUMNS = ("sample_id", "label_name", "label_probability", "suspected_label_name")


@dataclass(frozen=True)
class Supervision:
    """What the loss of each sample is computed from besides its given label.

    Attributes:
        weights: Factor of the objective of each sample, with mean 1 over the training samples; None
            counts all alike. Shape (samples,).
        shares: Share of the given label in the loss, from 0 to 1; the rest belongs to `others`.
            None where the given labels are the only ones. Shape (samples,).
        others: A second label of each sample; None where there is none. Shape (samples,).
    """

    weights: Tensor | None = None
    shares: Tensor | None = None
    others: Tensor | None = None

    def of(self, positions: Tensor, device: torch.device) -> "Supervision":
        """That of some samples, on a device."""
        weights, shares, others = (
            None if each is None else each[positions].to(device, non_blocking=True)
            for each in (self.weights, self.shares, self.others)
        )
        return Supervision(weights, shares, others)


@dataclass(frozen=True)
class LabelBeliefs:
    """What a score file says about the labels of training samples, in their order.

    Attributes:
        probabilities: Probability that the given label is right, 1 where nothing is known.
            Shape (samples,).
        known: Whether it is known. Shape (samples,).
        others: Likeliest other class, or the given label where nothing is known. Shape (samples,).
    """

    probabilities: Tensor
    known: Tensor
    others: Tensor

    def supervision(self, config: LossConfig) -> Supervision:
        """The weights, or the shares and second labels, that a recipe asks for."""
        shares = self.probabilities.float()
        if config.targets == "posterior":
            return Supervision(shares=shares, others=self.others)
        mean = self.probabilities[self.known].mean()
        if not mean > 0:
            raise TrainingError(
                "the label_probability of every training sample is 0",
                "look at the labels, or train without loss.weights",
            )
        weights = torch.where(self.known, self.probabilities / mean, 1.0)
        return Supervision(weights=weights.float())

    def describe(self) -> dict[str, float | int]:
        """JSON values: the mean probability, and how many samples are doubted or not known.

        Kish's effective sample size of weights by the probability is a share of all samples.
        """
        known = self.probabilities[self.known]
        return {
            "mean_probability": float(known.mean()),
            "more_likely_wrong": int((known < 0.5).sum()),  # noqa: PLR2004 - a probability
            "effective_share": float(known.mean() ** 2 / known.square().mean()),
            "missing": int((~self.known).sum()),
        }


def label_beliefs(samples: Samples, path: Path, config: LossConfig) -> LabelBeliefs:
    """Reads what a score file says about the labels of training samples; joined by sample id."""
    table = read_scores(path, COLUMNS).table
    probabilities = table["label_probability"].cast(pa.float64()).to_numpy()
    if np.isnan(probabilities).all():
        raise ConfigError(
            f"no sample of {path} has a label_probability", "score labels of several classes"
        )
    scored_ids = pa.chunked_array(table["sample_id"]).cast(pa.large_string()).combine_chunks()
    require_unique(scored_ids, path)
    ids = pa.array(list(samples.sample_ids), pa.large_string())
    positions = positions_of(ids, scored_ids)
    found = np.append(probabilities, np.nan)[positions]
    known = ~np.isnan(found)
    _require_known(ids, known, positions, path, config)
    names = np.array(samples.class_names, dtype=object)
    given = names[samples.labels.numpy()]
    _require_same_labels(ids, given, _take(table["label_name"], positions), path)
    suspected = np.where(known, _take(table["suspected_label_name"], positions), given)
    return LabelBeliefs(
        probabilities=torch.from_numpy(np.where(known, found, 1.0)),
        known=torch.from_numpy(known),
        others=_class_indices(suspected, samples.class_names, path),
    )


def _take(column: pa.ChunkedArray, positions: NDArray[np.int64]) -> NDArray[np.object_]:
    """Texts of some rows; None for the row -1, and where there is none."""
    texts = np.array([*column.cast(pa.large_string()).to_pylist(), None], dtype=object)
    return texts[positions]


def _require_known(
    ids: pa.Array,
    known: NDArray[np.bool_],
    positions: NDArray[np.int64],
    path: Path,
    config: LossConfig,
) -> None:
    if known.all() or (config.missing == "keep" and known.any()):
        return
    problems = [
        f"{len(some):,} of {len(ids):,} training samples {problem}, {examples_of(some)}"
        for some, problem in (
            (ids.filter(pa.array(positions < 0)), "are not in it"),
            (ids.filter(pa.array(~known & (positions >= 0))), "have no label_probability"),
        )
        if len(some)
    ]
    remedy = "score the training dataset"
    if known.any():
        remedy += ', or set loss.missing = "keep" to train on the labels of such samples as given'
    raise UnmatchedScores(f"{path} does not fit the dataset: {'; '.join(problems)}", remedy)


def _require_same_labels(
    ids: pa.Array, given: NDArray[np.object_], scored: NDArray[np.object_], path: Path
) -> None:
    """Refuses scores of other labels than those that are trained on."""
    differs = np.array([name is not None for name in scored]) & (scored != given)
    if differs.any():
        first = int(np.flatnonzero(differs)[0])
        raise UnmatchedScores(
            f"{differs.sum():,} of {len(ids):,} training samples have another label than in "
            f"{path}, for example {ids[first].as_py()!r}: {given[first]!r}, and {scored[first]!r} "
            "there",
            "score the labels that are trained on; data.label_noise changes labels after scoring",
        )


def _class_indices(names: NDArray[np.object_], class_names: tuple[str, ...], path: Path) -> Tensor:
    """The class of each name. Shape (samples,)."""
    index = {name: position for position, name in enumerate(class_names)}
    unknown = sorted({str(name) for name in names if name not in index})
    if unknown:
        raise UnmatchedScores(
            f"{path} suspects labels of classes that the training samples lack: "
            f"{', '.join(map(repr, unknown[:3]))}",
            "score the training dataset",
        )
    return torch.tensor([index[name] for name in names], dtype=torch.int64)
