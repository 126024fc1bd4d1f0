"""Consistency of two datasets: the same classes, and no sample in both."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from difficulty_service.errors import DatasetError
from trainer.samples import Samples

_SHOWN = 5


def are_numbered(class_names: Sequence[str]) -> bool:
    """Whether class names are 0, 1, 2, ..., as for integer labels without names."""
    return list(class_names) == [str(number) for number in range(len(class_names))]


def match_classes(samples: Samples, class_names: tuple[str, ...], source: str) -> Samples:
    """Converts labels to the class indices of the training dataset.

    Classes are matched by name, so some may be absent. Numbers without names are the indices:
    those of the samples may be fewer than the training classes, and where only the training
    dataset has numbers, the samples must have as many classes. A warning says so.

    Args:
        samples: Samples to evaluate.
        class_names: Class names of the training dataset.
        source: Location of the samples, for the message.

    Raises:
        DatasetError: A class is not one of the training dataset.
    """
    if samples.class_names == class_names:
        return samples
    unknown = [name for name in samples.class_names if name not in set(class_names)]
    if unknown and (are_numbered(samples.class_names) or are_numbered(class_names)):
        return _match_by_index(samples, class_names, source)
    if unknown:
        absent = [name for name in class_names if name not in set(samples.class_names)]
        raise DatasetError(
            f"{source!r} has {len(unknown)} classes that the training dataset lacks, first "
            f"{unknown[:_SHOWN]}, and lacks {len(absent)} of its {len(class_names)}, first "
            f"{absent[:_SHOWN]}",
            "check the label columns",
        )
    index = {name: position for position, name in enumerate(class_names)}
    new_labels = torch.tensor([index[name] for name in samples.class_names])
    return replace(samples, labels=new_labels[samples.labels], class_names=class_names)


def _match_by_index(samples: Samples, class_names: tuple[str, ...], source: str) -> Samples:
    names = samples.class_names
    if len(names) > len(class_names):
        raise DatasetError(
            f"{source!r} has {len(names)} classes and the training dataset {len(class_names)}, and "
            "a model can only be evaluated on classes that it was trained on",
            "check the label columns",
        )
    if not are_numbered(names) and len(names) < len(class_names):
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
        f"{source}: one of its classes and those of the training dataset are numbers without "
        f"names, so the classes are matched in their order: {pairs}"
    )
    if len(names) > _SHOWN:
        warning += ", ..."
    return replace(samples, class_names=class_names, warnings=(*samples.warnings, warning))


def refuse_shared_ids(train_ids: Sequence[str], other_ids: Sequence[str], source: str) -> None:
    """Refuses a validation split that shares samples with the training split.

    Raises:
        DatasetError: Both splits hold the same sample.
    """
    shared = set(train_ids).intersection(other_ids)
    if shared:
        raise DatasetError(
            f"{len(shared)} samples of {source!r} are in both the training and the validation "
            f"dataset, first {sorted(shared)[:_SHOWN]}",
            "choose another data.validation_split, or make data.validation a fraction",
        )
