"""Formats of other tools to which scores are exported.

`EXPORTS` lists them, with those of other packages; what writes one is imported when it is asked
for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.files import filling
from difficulty_service.base.plugins import Export, declared, function_of

if TYPE_CHECKING:
    from difficulty_service.cleaning.exports.samples import Exported
    from difficulty_service.pages.stored_images import ImageSource
    from difficulty_service.scores.file import ScoreFile

_HERE = "difficulty_service.cleaning.exports"

_OWN = (
    Export("csv", "all columns", f"{_HERE}.samples:write_csv"),
    Export("jsonl", "all columns", f"{_HERE}.samples:write_jsonl"),
    Export(
        "cleanlab",
        "its columns of label issues, as CSV or Parquet",
        f"{_HERE}.samples:write_cleanlab",
    ),
    Export(
        "huggingface",
        "images and scores, for `datasets.load_from_disk`",
        f"{_HERE}.hugging_face:write_hugging_face",
        is_folder=True,
    ),
    Export(
        "hub",
        "images and scores as Parquet with a dataset card, for the Hugging Face hub",
        f"{_HERE}.hub:write_hub",
        is_folder=True,
        push=f"{_HERE}.hub:push",
    ),
    Export(
        "fiftyone",
        "a FiftyOneImageClassificationDataset",
        f"{_HERE}.samples:write_fiftyone",
        is_folder=True,
        takes_texts=False,
    ),
    Export(
        "cvat",
        "tags to correct, the most doubtful first",
        f"{_HERE}.cvat:write_cvat",
        is_folder=True,
        takes_texts=False,
    ),
    Export(
        "embedding-atlas",
        "scores, a map and small images, as Parquet for Embedding Atlas",
        f"{_HERE}.embedding_atlas:write_embedding_atlas",
        has_images=True,
    ),
    Export(
        "labelstudio",
        "tasks to import, the most doubtful first",
        f"{_HERE}.label_studio:write_label_studio",
        is_folder=True,
    ),
)

EXPORTS: Mapping[str, Export] = {
    export.name: export
    for export in (*_OWN, *declared("difficulty.exports", Export, [each.name for each in _OWN]))
}
"""Every format by its name."""


def needs_images(export: Export) -> bool:
    """Whether what writes a format takes the images."""
    return export.is_folder or export.has_images


def export_file(
    name: str, scores: "ScoreFile", out: Path, images: "ImageSource | None" = None
) -> "Exported":
    """Writes scores in a format of `EXPORTS`; the file appears whole or not at all.

    Args:
        images: Where the format has images; None otherwise.
    """
    write = function_of(EXPORTS[name].write)
    exported: Exported = write(scores, out) if images is None else write(scores, images, out)
    return exported


def export_folder(name: str, scores: "ScoreFile", images: "ImageSource", out: Path) -> "Exported":
    """Writes scores and images in a format of `EXPORTS`; the folder appears whole or not at all."""
    if images.is_text and not EXPORTS[name].takes_texts:
        others = [other for other, export in EXPORTS.items() if export.takes_texts]
        raise CleaningError(
            f"the format {name} holds images, and the samples are texts",
            f"choose one of {', '.join(others)}",
            parameter="to",
        )
    write = function_of(EXPORTS[name].write)
    with filling(out) as folder:
        exported: Exported = write(scores, images, folder, out.absolute())
    return exported
