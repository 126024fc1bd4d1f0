"""How two datasets fit together: the same classes, and no sample in both."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from difficulty_service.errors import DatasetError
from trainer.samples import Samples

_SHOWN = 5


def are_numbered(class_names: Sequence[str]) -> bool:
    """Whether classes are only called 0, 1, 2, ..., as where labels are integers without names."""
    return list(class_names) == [str(number) for number in range(len(class_names))]


def match_classes(samples: Samples, class_names: tuple[str, ...], source: str) -> Samples:
    """The same samples with labels as indices into other class names.

    Names are matched by name, so a class may be absent. Where one side has only numbers, the
    numbers are the indices.

    Args:
        samples: To be judged.
        class_names: Those of the training dataset.
        source: Where the samples are from, for the message.

    Raises:
        DatasetError: They have a class that the others do not.
    """
    if samples.class_names == class_names:
        return samples
    if are_numbered(samples.class_names) or are_numbered(class_names):
        if len(samples.class_names) > len(class_names):
            raise DatasetError(
                f"{source!r} has {len(samples.class_names)} classes and the training dataset "
                f"{len(class_names)}; a model can only be judged on classes it knows: check the "
                "label columns"
            )
        return replace(samples, class_names=class_names)
    unknown = [name for name in samples.class_names if name not in set(class_names)]
    if unknown:
        absent = [name for name in class_names if name not in set(samples.class_names)]
        raise DatasetError(
            f"{source!r} has {len(unknown)} classes that the training dataset lacks, first "
            f"{unknown[:_SHOWN]}, and lacks {len(absent)} of its {len(class_names)}, first "
            f"{absent[:_SHOWN]}; check the label columns"
        )
    index = {name: position for position, name in enumerate(class_names)}
    new_labels = torch.tensor([index[name] for name in samples.class_names])
    return replace(samples, labels=new_labels[samples.labels], class_names=class_names)


def refuse_shared_ids(train_ids: Sequence[str], other_ids: Sequence[str], source: str) -> None:
    """Refuses two splits of one place that have samples in common.

    Raises:
        DatasetError: They have.
    """
    shared = set(train_ids).intersection(other_ids)
    if shared:
        raise DatasetError(
            f"{len(shared)} samples of {source!r} are in both the training and the validation "
            f"dataset, first {sorted(shared)[:_SHOWN]}; choose another validation_split, or give "
            "validation as a share"
        )
