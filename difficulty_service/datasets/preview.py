"""What would be read of a dataset, without decoding anything: its format, classes, and the rest."""

from collections.abc import Iterator

import numpy as np

from difficulty_service.dataset_formats import (
    DATASET_FORMATS,
    ClassSize,
    DatasetPreview,
    LeftOut,
)
from difficulty_service.datasets.image_openers import extension_problem, has_image_extension
from difficulty_service.datasets.listing import skip_warnings
from difficulty_service.datasets.sample import Dataset

MOST_NAMED = 20
"""Entries that are named for each reason why something is left out."""

MOST_REASONS, LONGEST = 50, 300
"""Reasons that are told apart, and characters of a text that comes from the dataset."""

_OF_FILES = ("image-folder", "archive")
"""Formats whose ids are names of files."""


def preview(dataset: Dataset, split: str | None, most_classes: int | None = None) -> DatasetPreview:
    """Describes a dataset that is listed; with the first of its classes, or with all."""
    sizes = np.bincount(dataset.labels, minlength=len(dataset.class_names)).tolist()
    classes = [
        ClassSize(name=name, num_samples=size)
        for name, size in zip(dataset.class_names, sizes, strict=True)
        if size and dataset.has_labels
    ]
    kind = dataset.format or ""
    of_skipped = skip_warnings(dataset.skipped)
    return DatasetPreview(
        format=kind,
        title=DATASET_FORMATS.get(kind, kind),
        split=split,
        noun=dataset.noun,
        num_samples=len(dataset.labels),
        num_classes=len(classes),
        classes=tuple(classes[:most_classes]),
        left_out=tuple(_left_out(dataset)),
        notes=tuple(note for note in dataset.warnings if note not in of_skipped),
    )


def _left_out(dataset: Dataset) -> Iterator[LeftOut]:
    reasons: dict[str, list[str]] = {}
    for name, reason in dataset.skipped:
        reasons.setdefault(reason, []).append(name)
    if dataset.format in _OF_FILES:
        for name in dataset.sample_ids:
            if not has_image_extension(name):
                reasons.setdefault(extension_problem(name), []).append(name)
    for reason, names in list(reasons.items())[:MOST_REASONS]:
        examples = tuple(name[:LONGEST] for name in names[:MOST_NAMED])
        yield LeftOut(reason=reason[:LONGEST], entries=len(names), examples=examples)
    if others := list(reasons.values())[MOST_REASONS:]:
        yield LeftOut(reason="for other reasons", entries=sum(map(len, others)), examples=())
