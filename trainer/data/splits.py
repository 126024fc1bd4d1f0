"""Training, validation and test splits, and label noise."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from difficulty_service.datasets.sample import Dataset
from difficulty_service.errors import DatasetError, FeatureStoreError
from trainer.samples import InputSpec, Samples, SkippedEntry

_SPLIT_STREAM, _NOISE_STREAM = 0, 1
"""Streams of random numbers of one seed, so that noise does not depend on the split."""


@dataclass(frozen=True)
class Splits:
    """The samples of a run.

    Attributes:
        train: Training samples.
        validation: Validation samples; None where nothing is held out.
        test: Test samples; None without a test dataset.
        spec: Specification of the inputs, with statistics of the training samples.
        all_ids: Ids of the whole training dataset, including held-out samples and those that a
            limit leaves out.
    """

    train: Samples
    validation: Samples | None
    test: Samples | None
    spec: InputSpec
    all_ids: Sequence[str]

    @property
    def skipped(self) -> list[SkippedEntry]:
        """Entries of all datasets that are not used."""
        return [entry for samples in self._opened for entry in samples.skipped]

    @property
    def warnings(self) -> list[str]:
        """Warnings about all datasets, one sentence each."""
        return list(dict.fromkeys(text for samples in self._opened for text in samples.warnings))

    @property
    def _opened(self) -> list[Samples]:
        return [each for each in (self.train, self.validation, self.test) if each is not None]


@contextmanager
def named_by(key: str, location: str) -> Iterator[None]:
    """Puts the key of a recipe in front of every error about the dataset that it names.

    Args:
        key: Key with its table, as in "data.test".
        location: Value of the key.
    """
    try:
        yield
    except (DatasetError, FeatureStoreError) as error:
        raise type(error)(
            f'{key} = "{location}": {error.problem}', *error.remedy, parameter=error.parameter
        ) from error


def skipped_entries(dataset: Dataset) -> list[SkippedEntry]:
    """The entries of a dataset that are no samples."""
    return [SkippedEntry(dataset.location, *entry) for entry in dataset.skipped]


def warnings_of(dataset: Dataset) -> tuple[str, ...]:
    """The warnings about a dataset, with its location."""
    return tuple(f"{dataset.location}: {sentence}" for sentence in dataset.warnings)


def hold_out(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Holds out the same fraction of every class at random; keeps at least one sample of each.

    The number held out of each class is exact to within one sample, and so is their total, apart
    from classes with a single sample.

    Args:
        labels: Class indices. Shape (samples,).
        fraction: Fraction of the samples to hold out, in [0, 1).
        seed: Seed of the random choice.

    Returns:
        Ascending positions of the training samples and of the held-out samples, int64.

    Raises:
        DatasetError: The fraction is above zero and no sample can be held out.
    """
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    generator = np.random.default_rng([seed, _SPLIT_STREAM])
    # Rounding the running total keeps the total exact where a class is below one sample.
    targets = np.diff(np.rint(np.cumsum(counts) * fraction).astype(np.int64), prepend=0)
    is_held_out = np.zeros(len(labels), dtype=bool)
    for label, number in zip(classes, np.minimum(targets, counts - 1), strict=True):
        members = np.flatnonzero(labels.numpy() == label)
        is_held_out[generator.permutation(members)[:number]] = True
    if fraction > 0 and not is_held_out.any():
        raise DatasetError(
            f"a validation fraction of {fraction} of {len(labels)} samples in {len(classes)} "
            "classes holds out none",
            "make data.validation a larger fraction, a dataset or 0",
        )
    positions = torch.from_numpy(is_held_out)
    return (~positions).nonzero().squeeze(1), positions.nonzero().squeeze(1)


def inject_label_noise(labels: Tensor, fraction: float, num_classes: int, seed: int) -> Tensor:
    """Replaces exactly round(fraction · samples) labels, every other class being equally likely.

    Args:
        labels: Class indices. Shape (samples,).
        fraction: Fraction of the labels to replace, in [0, 1).
        num_classes: Number of classes.
        seed: Seed of the random choice.

    Returns:
        Shape (samples,).

    Raises:
        DatasetError: There is only one class.
    """
    number = round(fraction * len(labels))
    if not number:
        return labels
    if num_classes < 2:  # noqa: PLR2004 - another class takes two
        raise DatasetError("data.label_noise needs at least two classes", "set it to 0")
    generator = np.random.default_rng([seed, _NOISE_STREAM])
    chosen = torch.from_numpy(generator.permutation(len(labels))[:number])
    steps = torch.from_numpy(generator.integers(1, num_classes, number))
    noisy = labels.clone()
    noisy[chosen] = (labels[chosen] + steps) % num_classes
    return noisy


def with_label_noise(samples: Samples, fraction: float, seed: int) -> Samples:
    """The samples with the labels of `inject_label_noise`."""
    noisy = inject_label_noise(samples.labels, fraction, len(samples.class_names), seed)
    return replace(samples, labels=noisy)
