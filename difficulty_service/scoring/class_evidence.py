"""What the features of samples, or their scores, say of the class of each one.

Of features, the log-densities of all classes at a sample that the fit lacks; they are kept in a
temporary file, so that the memory does not grow with the samples. Of scores, where the features are
gone, the three classes that fit best and how probable they are.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.base.tables import to_numpy
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.base.wording import list_names
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.label_noise import log_class_prior
from difficulty_service.gaussians.products import BATCH_ROWS, BLOCK_ROWS, one_thread_per_product
from difficulty_service.scorers.suspicion import LabelPosteriors
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES
from difficulty_service.scoring.fit_store import fit_store_posteriors
from difficulty_service.scoring.marked_features import ChangedFeatures

LEAST_OTHERS = 1e-6
"""Smallest probability of all classes together that a score file does not name."""


class ClassEvidence(Protocol):
    """Log-density of each class at each sample, which did not take part in the fit."""

    def __call__(self, rows: slice) -> Tensor:
        """Of some samples, up to a constant for each; NaN where nothing is known of one.

        Shape (rows, classes).
        """


@dataclass(frozen=True)
class KnownSamples:
    """The samples that have features or scores, with the class index of each given label.

    Attributes:
        given: Shape (samples,).
        verified: Class index that a person decided on; -1 where nobody did. Shape (samples,).
    """

    sample_ids: pa.StringArray
    given: Tensor
    verified: Tensor
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, sample_ids: pa.StringArray, given: Tensor, class_names: Sequence[str]) -> Self:
        """Samples of which nobody has verified a class."""
        return cls(sample_ids, given, torch.full_like(given, -1), tuple(class_names))


@dataclass(frozen=True)
class Witness:
    """What is known of the classes of samples without their labels; as for `fit_annotators`."""

    evidence: ClassEvidence
    log_prior: Tensor
    scale: float


def samples_of_features(store: FeatureSource) -> KnownSamples:
    """The samples of features, of which only ids and labels are read."""
    ids, labels = [], []
    for shard in range(store.num_shards):
        opened = store.open_shard(shard, ("sample_id",))
        ids.append(opened.sample_ids[:: store.runs])
        labels.append(opened.labels[:: store.runs].long())
    return KnownSamples.of(
        pa.chunked_array(ids, pa.string()).combine_chunks(),
        torch.cat(labels),
        store.class_names,
    )


def samples_of_scores(scores: ScoreFile, class_names: tuple[str, ...]) -> KnownSamples:
    """The samples of a score file."""
    labels = scores.column("label").combine_chunks().to_numpy()
    ids = scores.column("sample_id").cast(pa.string()).combine_chunks()
    return KnownSamples.of(ids, torch.from_numpy(labels.astype(np.int64)), class_names)


@contextmanager
def witness_of_features(
    store: FeatureSource, labels: Tensor, folder: Path | None
) -> Iterator[Witness]:
    """Fits the densities of the classes to labels, and gives what they say of each sample.

    Args:
        store: Features of the samples.
        labels: Class index of each sample. Shape (samples,).
        folder: Folder of the temporary file; None for that of the system.

    Raises:
        StatisticsError: There is no second class to compare with.
    """
    changed = ChangedFeatures(store, labels)
    posteriors = fit_store_posteriors(changed, ("suspicion",), torch.float32)
    if posteriors is None or posteriors.suspicion is None or posteriors.noise is None:
        names = [store.class_names[label] for label in labels.unique().tolist()]
        raise StatisticsError(
            f"the labels name no two classes of two samples each, but {list_names(names)}",
            "annotators are compared by at least two classes",
        )
    fitted = posteriors.suspicion.densities.classes
    shape = (len(labels), len(store.class_names))
    log_prior = torch.full((shape[1],), -torch.inf, dtype=torch.float64)
    log_prior[fitted] = posteriors.noise.log_prior
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(4 * shape[0] * shape[1])
        written = np.memmap(file, np.float32, "r+", shape=shape)
        first = 0
        for densities in _log_densities(changed, posteriors):
            written[first : first + len(densities), fitted.numpy()] = densities.numpy()
            first += len(densities)
        kept = torch.from_numpy(written)
        yield Witness(lambda rows: kept[rows], log_prior, posteriors.noise.scale)


def _log_densities(store: FeatureSource, posteriors: LabelPosteriors) -> Iterator[Tensor]:
    """Log-densities of the fitted classes at a few thousand samples at a time, in order."""

    def of_slice(where: tuple[int, slice]) -> Tensor:
        opened = store.open_shard(where[0], [], where[1])
        size = max(1, BLOCK_ROWS // store.runs) * store.runs
        starts = range(0, len(opened.labels), size)
        return torch.cat(
            [
                posteriors.log_densities(
                    opened.read_features(slice(start, start + size)),
                    opened.labels[start : start + size : store.runs].long().contiguous(),
                )
                for start in starts
            ]
            or [torch.empty(0, 0)]
        )

    with one_thread_per_product():
        for densities in map_in_order(of_slice, store.slices(BATCH_ROWS), num_workers()):
            if len(densities):
                yield densities


def witness_of_scores(scores: ScoreFile, samples: KnownSamples) -> Witness:
    """What the likeliest classes in a score file say.

    What these leave to others is shared by all of these, each by its prior.

    Raises:
        ScoreFileError: The scores lack these classes; the remedy is what computes them.
        StatisticsError: There is no second class to compare with.
    """
    classes = len(samples.class_names)
    log_prior = log_class_prior(samples.given.bincount(minlength=classes))
    if int(log_prior.isfinite().sum()) < len(("one", "another")):
        raise StatisticsError(
            "the scores know no two classes of two samples each",
            "annotators are compared by at least two classes",
        )
    columns = [
        (
            pc.fill_null(scores.column(label).combine_chunks(), classes).to_numpy(),
            np.nan_to_num(to_numpy(scores.column(probability).combine_chunks())),
        )
        for label, probability in LIKELIEST_CLASSES.items()
    ]
    # A class that is not known has the last place, which no class has.
    places, likely = (
        torch.from_numpy(np.stack(each, axis=1)) for each in zip(*columns, strict=True)
    )

    def evidence(rows: slice) -> Tensor:
        place, chance = places[rows].long(), likely[rows].double()
        named = chance.new_zeros(len(place), classes + 1).scatter_(1, place, chance)[:, :classes]
        is_other = chance.new_ones(len(place), classes + 1).scatter_(1, place, 0.0)[:, :classes]
        prior = log_prior.exp() * is_other
        rest = (1 - chance.sum(dim=1, keepdim=True)).clamp(min=LEAST_OTHERS)
        others = rest * prior / prior.sum(dim=1, keepdim=True).clamp(min=LEAST_OTHERS)
        joint = torch.where(is_other > 0, others, named.clamp(min=LEAST_OTHERS))
        # An impossible class stays so by its prior, whatever is said of it.
        possible = log_prior.isfinite()
        densities = torch.where(possible, joint.log() - log_prior, 0.0)
        return densities.where(place[:, :1] < classes, torch.nan)

    return Witness(evidence, log_prior, 1.0)
