"""Training, validation and test splits, and label noise.

Consistency of two datasets: the same classes, and no sample in both.

Mean and standard deviation of training inputs, for the normalisation of a model.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from difficulty_service.base.errors import DatasetError, FeatureStoreError
from difficulty_service.datasets.sample import Dataset
from trainer.config import AnyData
from trainer.samples import InputSpec, Samples, SkippedEntry

_SPLIT_STREAM, _NOISE_STREAM = 0, 1
"""Streams of random numbers of one seed, so that noise does not depend on the split."""


@dataclass(frozen=True)
class Splits:
    """The samples of a run.

    The specification of the inputs has statistics of the training samples. All ids are those of the
    whole training dataset, including held-out samples and those that a limit leaves out.
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


WITHOUT_TEST = "train without test samples by `--set data.test=`"
"""What to do where there are no test samples, which most recipes name."""


@contextmanager
def named_by(key: str, location: str) -> Iterator[None]:
    """Puts the key of a recipe in front of every error about the dataset that it names."""
    try:
        yield
    except (DatasetError, FeatureStoreError) as error:
        remedy = error.remedy
        if key == "data.test":
            remedy = (*remedy, ", or ", WITHOUT_TEST) if remedy else (WITHOUT_TEST,)
        raise type(error)(
            f'{key} = "{location}": {error.problem}', *remedy, parameter=error.parameter
        ) from error


def skipped_entries(dataset: Dataset) -> list[SkippedEntry]:
    """The entries of a dataset that are no samples."""
    return [SkippedEntry(dataset.location, *entry) for entry in dataset.skipped]


def warnings_of(dataset: Dataset) -> tuple[str, ...]:
    """The warnings about a dataset, with its location."""
    return tuple(f"{dataset.location}: {sentence}" for sentence in dataset.warnings)


def hold_out(labels: Tensor, validation: float | str, seed: int) -> tuple[Tensor, Tensor]:
    """Positions of the training samples and of the held-out samples, both ascending, int64.

    The same fraction of every class is held out at random, but at least one sample of each is kept.
    The number held out of each class is exact to within one sample, and so is their total, apart
    from classes with a single sample. Where validation is a dataset, nothing is held out.
    """
    fraction = 0.0 if isinstance(validation, str) else validation
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


def open_other(
    config: AnyData,
    key: Literal["validation", "test"],
    class_names: tuple[str, ...],
    train_ids: Sequence[str],
    opened: Callable[[str], Samples],
) -> Samples | None:
    """Opens a dataset of a recipe with the classes of the training dataset; None without one."""
    location = getattr(config, key)
    if not isinstance(location, str):
        return None
    with named_by(f"data.{key}", location):
        samples = opened(location)
        if key == "validation" and location == config.train:
            refuse_shared_ids(train_ids, samples.sample_ids, location)
        return match_classes(samples, class_names, location)


def inject_label_noise(labels: Tensor, fraction: float, num_classes: int, seed: int) -> Tensor:
    """Replaces exactly round(fraction · samples) labels, every other class being equally likely."""
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


_SHOWN = 5


def are_numbers(class_names: Sequence[str]) -> bool:
    """Whether class names are the integers of labels without names."""
    return all(map(str.isdecimal, class_names))


def match_classes(samples: Samples, class_names: tuple[str, ...], source: str) -> Samples:
    """Converts labels to the class indices of the training dataset.

    Classes are matched by name, also where the names are numbers, so some may be absent. Where one
    of both has names and the other one the numbers 0, 1, 2, ..., these are the places of the names:
    those of the samples may be fewer than the training classes, and where only the training dataset
    has numbers, the samples must have as many classes. A warning says so.

    Raises:
        DatasetError: Samples are of classes that the training dataset lacks, or of a name that it
            has another number of times.
    """
    names = samples.class_names
    if names == class_names:
        return samples
    present = [names[label] for label in samples.labels.unique().tolist()]
    unknown = [name for name in present if name not in set(class_names)]
    if unknown and are_numbers(names) != are_numbers(class_names) and _count_up(names, class_names):
        return _match_by_index(samples, class_names, source)
    if unknown:
        absent = [name for name in class_names if name not in set(names)]
        raise DatasetError(
            f"{source!r} has {len(unknown)} classes that the training dataset lacks, first "
            f"{unknown[:_SHOWN]}, and lacks {len(absent)} of its {len(class_names)}, first "
            f"{absent[:_SHOWN]}",
            "check the label columns, or leave out samples of classes that the model does not know",
        )
    one, other = Counter(names), Counter(class_names)
    shared = next((name for name in present if one[name] != other[name]), None)
    if shared is not None:
        raise DatasetError(
            f"{source!r} has {one[shared]} classes of the name {shared!r}, and the training "
            f"dataset has {other[shared]}",
            "give each class a name of its own",
        )
    index = {key: position for position, key in enumerate(_keys(class_names))}
    new_labels = torch.tensor([index.get(key, -1) for key in _keys(names)])
    return replace(samples, labels=new_labels[samples.labels], class_names=class_names)


def _count_up(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the class names that are numbers are 0, 1, 2, ..."""
    numbers = one if are_numbers(one) else other
    return list(numbers) == [str(number) for number in range(len(numbers))]


def _keys(class_names: Sequence[str]) -> list[tuple[str, int]]:
    """Each name with the number of equal ones before it: two classes may share a name."""
    seen: Counter[str] = Counter()
    keys = []
    for name in class_names:
        keys.append((name, seen[name]))
        seen[name] += 1
    return keys


def _match_by_index(samples: Samples, class_names: tuple[str, ...], source: str) -> Samples:
    names = samples.class_names
    if len(names) > len(class_names):
        raise DatasetError(
            f"{source!r} has {len(names)} classes and the training dataset {len(class_names)}, and "
            "a model can only be evaluated on classes that it was trained on",
            "check the label columns",
        )
    if not are_numbers(names) and len(names) < len(class_names):
        raise DatasetError(
            f"{source!r} has the classes {list(names[:_SHOWN])} and the training dataset the "
            f"{len(class_names)} numbers {list(class_names[:_SHOWN])}, so they cannot be matched "
            "by name, nor one for one",
            "train with class names, or give a dataset of the same numbers",
        )
    pairs = ", ".join(
        f"{name} = {other}" for name, other in list(zip(class_names, names, strict=False))[:_SHOWN]
    )
    warning = (
        f"{source}: the classes of one of it and the training dataset are numbers and those of the "
        f"other are names, so they are matched in their order: {pairs}"
    )
    if len(names) > _SHOWN:
        warning += ", ..."
    return replace(samples, class_names=class_names, warnings=(*samples.warnings, warning))


def refuse_shared_ids(train_ids: Sequence[str], other_ids: Sequence[str], source: str) -> None:
    """Refuses a validation split that shares samples with the training split."""
    shared = set(train_ids).intersection(other_ids)
    if shared:
        raise DatasetError(
            f"{len(shared)} samples of {source!r} are in both the training and the validation "
            f"dataset, first {sorted(shared)[:_SHOWN]}",
            "choose another data.validation_split, or make data.validation a fraction",
        )


IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Statistics of red, green and blue in [0, 255], customary for photographs."""

_ROWS_PER_BLOCK = 2048


def mean_and_std(values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Computes mean and standard deviation per channel or dimension, accumulated in float64.

    Of values of shape (all samples, channels, ...) or (all samples, dim), at some positions. The
    population standard deviation is 1 where the values are constant; float32 on the CPU.
    """
    others = (0, *range(2, values.ndim))
    total = torch.zeros(values.shape[1], dtype=torch.float64)
    total_squared, count = torch.zeros_like(total), 0
    # Sums about the mean of the first sample lose no digits where the mean is far from zero.
    first = values[positions[:1].to(values.device)].cpu().double()
    level = first.mean(dim=others, keepdim=True)
    for block in positions.split(_ROWS_PER_BLOCK):
        centred = values[block.to(values.device)].cpu().double() - level
        total += centred.sum(dim=others)
        total_squared += centred.square_().sum(dim=others)
        count += centred.numel() // len(total)
    mean = total / count
    variance = (total_squared / count - mean.square()).clamp(min=0)
    std = torch.where(variance > 0, variance.sqrt(), 1.0)
    return (mean + level.flatten()).float(), std.float()


def imagenet_statistics() -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of ImageNet, in [0, 255]; shape (3,) each."""
    return torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
