"""The samples of a split: ids, labels, and inputs in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

NUM_DRAWS = 5
"""Random numbers per sample and epoch: mirror, crop row, crop column, crop area, aspect ratio."""


class Inputs(Protocol):
    """The inputs of a split, in memory or on disk."""

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """Yields batches of inputs on the device, in the order of the plan.

        Args:
            plan: Positions of the samples of each batch, int64 on the CPU.
            draws: Random numbers in [0, 1) for the augmentation of each sample, so that it depends
                neither on the batch nor on the process; None applies no augmentation. Shape (all
                samples, NUM_DRAWS).

        Yields:
            One batch per entry of the plan: images, uint8 of shape (samples, 3, height, width);
            features, float32 of shape (samples, dim); texts, int64 of shape (samples, length); or
            trees, int64 of shape (nodes, 5), as `trainer.data.trees.TreeInputs` describes them.
        """
        ...


@dataclass(frozen=True)
class InputSpec:
    """The specification of a model's inputs.

    Attributes:
        shape: Shape of one sample: (3, height, width), (dim,) or (length,); () for trees, which
            differ in size.
        mean: Mean of the training samples per channel or dimension, in [0, 255] for images; None
            for texts and trees.
        std: Standard deviation of the training samples, likewise.
        vocabulary: Word of each token of a text or tree; empty for other inputs.
        tokenizer: Name or folder of the pretrained network whose tokens texts consist of; None
            where they are words.
        padding: Its token after the end of a text; None without one.
    """

    shape: tuple[int, ...]
    mean: Tensor | None = None
    std: Tensor | None = None
    vocabulary: tuple[str, ...] = ()
    tokenizer: str | None = None
    padding: int | None = None


@dataclass(frozen=True)
class SkippedEntry:
    """An entry of a dataset that is not used: an unreadable image, or no sample."""

    dataset: str
    sample_id: str
    reason: str


@dataclass(frozen=True)
class Samples:
    """The samples of one split.

    Attributes:
        sample_ids: Id of each sample.
        labels: Class indices, int64 on the CPU. Shape (samples,).
        class_names: Name of each class index.
        inputs: Images, features, texts or trees of the samples.
        skipped: Entries of the dataset of this split that are not used.
        warnings: Warnings about that dataset, one sentence each.
        groups: Group of each sample, such as the sentence of a phrase: training batches consist of
            whole groups. None where every sample is its own. Int64, shape (samples,).
        distributions: Share of each class in the votes on each sample, which takes the place of
            the label in the loss; None where there is none. Float32, shape (samples, classes).
    """

    sample_ids: Sequence[str]
    labels: Tensor
    class_names: tuple[str, ...]
    inputs: Inputs
    skipped: Sequence[SkippedEntry] = ()
    warnings: tuple[str, ...] = ()
    groups: Tensor | None = None
    distributions: Tensor | None = None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.labels)
