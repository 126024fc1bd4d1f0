"""What a split of a dataset gives to the loop: ids, labels, and inputs in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

NUM_DRAWS = 5
"""Random numbers per sample and epoch: flip, crop row, crop column, crop area, aspect ratio."""


class Inputs(Protocol):
    """The inputs of some samples, by position, wherever they are kept."""

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """Inputs on the device, in the order of the plan.

        Args:
            plan: Positions of the samples of each batch, int64 on the CPU.
            draws: Uniform in [0, 1), for the random changes of each sample, so that what is done
                to a sample depends neither on its batch nor on who makes it; None changes
                nothing. Shape (all samples, NUM_DRAWS).

        Yields:
            One batch per entry of the plan: images, uint8 of shape (samples, 3, height, width);
            features, float32 of shape (samples, dim); or texts, int64 of shape (samples, length).
        """
        ...


@dataclass(frozen=True)
class InputSpec:
    """What a model has to know of its inputs.

    Attributes:
        shape: Of one sample: (3, height, width), (dim,) or (length,).
        mean: Of the training samples, per channel or dimension, in [0, 255] for images; None for
            texts.
        std: Standard deviation beside it.
        vocabulary: The word of each token of a text; empty otherwise.
    """

    shape: tuple[int, ...]
    mean: Tensor | None = None
    std: Tensor | None = None
    vocabulary: tuple[str, ...] = ()


@dataclass(frozen=True)
class Samples:
    """One split.

    Attributes:
        sample_ids: One per sample.
        labels: Class indices, int64 on the CPU. Shape (samples,).
        class_names: Name of each class index.
        inputs: Their images, features or texts.
    """

    sample_ids: Sequence[str]
    labels: Tensor
    class_names: tuple[str, ...]
    inputs: Inputs

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.labels)
