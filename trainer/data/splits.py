"""Which samples are learned from and which are held out, and labels made wrong on purpose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from difficulty_service.errors import DatasetError
from trainer.samples import InputSpec, Samples

_SPLIT_STREAM, _NOISE_STREAM = 0, 1
"""Keep the random numbers of one seed apart, so that noise does not depend on the split."""


@dataclass(frozen=True)
class Splits:
    """Everything a run learns from and is judged on.

    Attributes:
        train: To learn from.
        validation: To choose by; None where nothing is held out.
        test: To judge on, once; None where none is named.
        spec: What a model has to know of the inputs, from the training samples.
        all_ids: Ids of the whole training dataset, with those held out and those that a limit
            leaves unused.
    """

    train: Samples
    validation: Samples | None
    test: Samples | None
    spec: InputSpec
    all_ids: Sequence[str]


def hold_out(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Chooses the same share of every class at random, and leaves one sample of each at least.

    Every class gives its share to within one sample, and all together the share of the whole,
    less what classes of a single sample keep.

    Args:
        labels: Class indices. Shape (samples,).
        share: Held out, in [0, 1).
        seed: Equal seeds choose the same samples.

    Returns:
        Ascending positions to learn from, and ascending positions held out, int64.

    Raises:
        DatasetError: The share is above zero and there is no sample to hold out.
    """
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    generator = np.random.default_rng([seed, _SPLIT_STREAM])
    # Rounding the running total keeps the whole right where a class has less than one to give.
    wanted = np.diff(np.rint(np.cumsum(counts) * share).astype(np.int64), prepend=0)
    is_held_out = np.zeros(len(labels), dtype=bool)
    for label, number in zip(classes, np.minimum(wanted, counts - 1), strict=True):
        members = np.flatnonzero(labels.numpy() == label)
        is_held_out[generator.permutation(members)[:number]] = True
    if share > 0 and not is_held_out.any():
        raise DatasetError(
            f"a validation share of {share} of {len(labels)} samples in {len(classes)} classes "
            "holds out none; give a larger share, a dataset of its own, or 0"
        )
    positions = torch.from_numpy(is_held_out)
    return (~positions).nonzero().squeeze(1), positions.nonzero().squeeze(1)


def inject_label_noise(labels: Tensor, share: float, num_classes: int, seed: int) -> Tensor:
    """Gives exactly round(share · samples) labels another class, each other one equally likely.

    Args:
        labels: Class indices. Shape (samples,).
        share: Of the labels to change, in [0, 1).
        num_classes: Classes to choose from.
        seed: Equal seeds change the same labels in the same way.

    Returns:
        Shape (samples,).

    Raises:
        DatasetError: There is no other class.
    """
    number = round(share * len(labels))
    if not number:
        return labels
    if num_classes < 2:  # noqa: PLR2004 - another class takes two
        raise DatasetError("label_noise needs two classes at least; set it to 0")
    generator = np.random.default_rng([seed, _NOISE_STREAM])
    chosen = torch.from_numpy(generator.permutation(len(labels))[:number])
    steps = torch.from_numpy(generator.integers(1, num_classes, number))
    noisy = labels.clone()
    noisy[chosen] = (labels[chosen] + steps) % num_classes
    return noisy


def with_label_noise(samples: Samples, share: float, seed: int) -> Samples:
    """The samples with labels of `inject_label_noise`."""
    noisy = inject_label_noise(samples.labels, share, len(samples.class_names), seed)
    return replace(samples, labels=noisy)
