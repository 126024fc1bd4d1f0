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

    Classes are matched by name, so some may be absent. Where one side has only numbers, the
    numbers are the indices.

    Args:
        samples: Samples to evaluate.
        class_names: Class names of the training dataset.
        source: Location of the samples, for the message.

    Raises:
        DatasetError: A class is not one of the training dataset.
    """
    if samples.class_names == class_names:
        return samples
    if are_numbered(samples.class_names) or are_numbered(class_names):
        if len(samples.class_names) > len(class_names):
            raise DatasetError(
                f"{source!r} has {len(samples.class_names)} classes and the training dataset "
                f"{len(class_names)}, and a model can only be evaluated on classes that it was "
                "trained on",
                "check the label columns",
            )
        return replace(samples, class_names=class_names)
    unknown = [name for name in samples.class_names if name not in set(class_names)]
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
