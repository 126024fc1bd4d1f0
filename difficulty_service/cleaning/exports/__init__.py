"""Formats of other tools to which scores are exported, one file each."""

from collections.abc import Callable
from pathlib import Path

from difficulty_service.cleaning.exports.cleanlab import write_cleanlab
from difficulty_service.cleaning.exports.fiftyone import write_fiftyone
from difficulty_service.cleaning.exports.hugging_face import write_hugging_face
from difficulty_service.cleaning.exports.label_studio import write_label_studio
from difficulty_service.cleaning.exports.samples import Exported
from difficulty_service.cleaning.exports.tables import write_csv, write_jsonl
from difficulty_service.cleaning.stored_images import ImageSource
from difficulty_service.errors import CleaningError
from difficulty_service.files.atomic_file import filling
from difficulty_service.score_file import ScoreFile

TABLES: dict[str, Callable[[ScoreFile, Path], Exported]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "cleanlab": write_cleanlab,
}
"""Writes a file of scores alone."""

FOLDERS: dict[str, Callable[[ScoreFile, ImageSource, Path, Path], Exported]] = {
    "huggingface": write_hugging_face,
    "fiftyone": write_fiftyone,
    "labelstudio": write_label_studio,
}
"""Writes scores and images into an empty folder."""


def export_folder(name: str, scores: ScoreFile, images: ImageSource, out: Path) -> Exported:
    """Writes scores and images to a folder in a format of `FOLDERS`.

    Args:
        name: Name of the format.
        scores: The score file.
        images: The dataset that was scored.
        out: A folder that does not exist or is empty; it appears whole or not at all.

    Raises:
        CleaningError: The samples are texts, and the format holds images only.
    """
    if images.is_text and name == "fiftyone":
        raise CleaningError(
            f"the format {name} holds images, and the samples are texts",
            f"choose one of huggingface, labelstudio, {', '.join(TABLES)}",
            parameter="to",
        )
    with filling(out) as folder:
        return FOLDERS[name](scores, images, folder, out.absolute())
