"""Scores as a FiftyOneImageClassificationDataset, with the scores as attributes of the labels."""

import json
from pathlib import Path

from difficulty_service.review.exports.samples import (
    Exported,
    class_list,
    image_files,
    sample_rows,
)
from difficulty_service.review.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile


def write_fiftyone(
    scores: ScoreFile,
    images: ImageSource,
    folder: Path,
    final: Path,  # noqa: ARG001 - all formats have the same parameters
) -> Exported:
    """Writes `labels.json` and the folder `data`.

    An image in a file of its own stays where it is, and the absolute path is its key; others are
    copied to `data`, and the name without the extension is the key.

    Args:
        scores: The score file.
        images: The dataset that was scored.
        folder: An empty folder.
        final: Absolute path that the folder will have.
    """
    missing = MissingImages()
    rows, names = sample_rows(scores), class_list(scores)
    index = {name: label for label, name in enumerate(names)}
    copies = folder / "data"
    copies.mkdir()  # FiftyOne requires it even if it is empty
    labels = {}
    for sample_id, path in image_files(images, list(rows), copies, missing):
        attributes = rows[sample_id]
        key = str(path) if path.is_absolute() else path.stem
        labels[key] = {"label": index[attributes.pop("label")], "attributes": attributes}
    described = {"classes": names, "labels": labels}
    (folder / "labels.json").write_text(json.dumps(described, indent=1), "utf-8")
    return Exported(missing.warnings())
