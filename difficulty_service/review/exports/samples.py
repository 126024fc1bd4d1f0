"""What several formats share: names of classes, a score from 0 to 1, and files of images.

All columns of a score file as CSV or JSON Lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray
from scipy.special import expit

from difficulty_service.base.errors import ImageError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import json_lines_writer, plain_schema
from difficulty_service.review.class_folders import extension_of
from difficulty_service.review.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import class_names_of


@dataclass(frozen=True)
class Exported:
    """What is to be said about an export.

    Attributes:
        warnings: Warnings, one sentence each.
        instructions: Sentences on how to open it, where that depends on the export.
    """

    warnings: Sequence[str] = ()
    instructions: Sequence[str] = ()


def text_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of text without dictionary encoding."""
    return table[name].cast(pa.string())


def class_list(scores: ScoreFile) -> list[str]:
    """Name of every class index from 0; an index without a known name is named by its number."""
    names = class_names_of(scores)
    present = [*names, *scores.column("nearest_label").drop_null().to_pylist()]
    return [names.get(label, str(label)) for label in range(max(present, default=-1) + 1)]


def label_scores(scores: ScoreFile) -> NDArray[np.float64]:
    """How well the label fits, from 0 to 1; lower is worse, below 0.5 another class fits better.

    It is the probability of the label against the best other class, if both are as frequent and
    Gaussian: the logistic function of minus half the label margin.

    Args:
        scores: The column label_margin.

    Returns:
        NaN without a margin. Shape (samples,).
    """
    margins: NDArray[np.float64] = scores.column("label_margin").cast(pa.float64()).to_numpy()
    return expit(-margins / 2)


def sample_rows(scores: ScoreFile) -> dict[str, dict[str, Any]]:
    """The known values of each sample by its id: names of classes, scores and a label score."""
    names = class_list(scores)
    rows = {}
    for row, label_score in zip(
        scores.table.to_pylist(), label_scores(scores).tolist(), strict=True
    ):
        del row["label_name"]
        nearest = row["nearest_label"]
        row |= {
            "label": names[row["label"]],
            "nearest_label": None if nearest is None else names[nearest],
            "label_score": None if np.isnan(label_score) else label_score,
        }
        rows[row["sample_id"]] = {name: value for name, value in row.items() if value is not None}
    return rows


def image_files(
    images: ImageSource, sample_ids: list[str], folder: Path, missing: MissingImages
) -> Iterator[tuple[str, Path]]:
    """The file of each image; one that has no file of its own is copied.

    Args:
        images: The dataset.
        sample_ids: Ids of the samples.
        folder: Folder for copies.
        missing: Takes the samples whose images cannot be read.

    Yields:
        Ids and paths: absolute for a file that existed, and the name in the folder for a copy.
    """
    for number, (sample_id, image) in enumerate(images.images(sample_ids, missing.add)):
        if image.path is not None:
            yield sample_id, image.path
            continue
        try:
            name = f"{number:08d}{extension_of(image.data)}"
        except ImageError as error:
            missing.add(sample_id, str(error))
            continue
        (folder / name).write_bytes(image.data)
        yield sample_id, Path(name)


def write_csv(scores: ScoreFile, path: Path) -> Exported:
    """Writes a CSV file with a header; a missing value is an empty cell."""
    table = scores.table.cast(plain_schema(scores.table.schema))
    with replacing(path) as temporary:
        pyarrow.csv.write_csv(table, temporary)
    return Exported()


def write_jsonl(scores: ScoreFile, path: Path) -> Exported:
    """Writes one JSON object for each sample; a missing value is null."""
    with replacing(path) as temporary, json_lines_writer(temporary, scores.table.schema) as write:
        for batch in scores.table.to_batches():  # a few thousand rows at a time become Python's
            write(pa.Table.from_batches([batch]))
    return Exported()
