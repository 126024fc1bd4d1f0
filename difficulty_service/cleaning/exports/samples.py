"""Scores as tables and as samples of other tools; the larger formats have files of their own."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import CleaningError, ImageError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import csv_writer, json_lines_writer, to_arrow
from difficulty_service.cleaning.class_folders import extension_of
from difficulty_service.cleaning.clean import write_table
from difficulty_service.marks.annotations import FIFTYONE_LABELS, GIVEN_LABEL
from difficulty_service.pages.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import class_names_of
from difficulty_service.scores.score_columns import CLASS_INDICES


@dataclass(frozen=True)
class Exported:
    """What is to be said about an export: warnings, and how to open it where that depends on it."""

    warnings: Sequence[str] = ()
    instructions: Sequence[str] = ()


def class_list(scores: ScoreFile) -> list[str]:
    """Name of every class index from 0; an index without a known name is named by its number."""
    names = class_names_of(scores)
    indices = [scores.table[name] for name in CLASS_INDICES if name in scores.table.column_names]
    largest = [pc.max(column).as_py() for column in indices]
    last = max((*names, *(label for label in largest if label is not None)), default=-1)
    return [names.get(label, str(label)) for label in range(last + 1)]


def label_scores(scores: ScoreFile) -> NDArray[np.float64]:
    """How well the label fits, from 0 to 1; lower is worse, below 0.5 another class fits better.

    It is the probability of the label against the best other class, if both are as frequent and
    Gaussian: the logistic function of minus half the label margin.
    """
    from scipy.special import expit  # the server, which imports this module, has no use for it

    margins: NDArray[np.float64] = scores.column("label_margin").cast(pa.float64()).to_numpy()
    return expit(-margins / 2)


def most_doubtful_first(scores: ScoreFile) -> list[str]:
    """The ids of all samples, those first whose label fits worst, those last where it is unknown.

    Samples whose labels fit equally stay in the order of the file.
    """
    margins = scores.column("label_margin").cast(pa.float64()).to_numpy()
    ids: list[str] = scores.table["sample_id"].to_pylist()
    return [ids[row] for row in np.argsort(-margins, kind="stable").tolist()]


def sample_rows(scores: ScoreFile) -> dict[str, dict[str, Any]]:
    """The known values of each sample by its id: names of classes, scores and a label score."""
    names = class_list(scores)
    rows = {}
    for row, label_score in zip(
        scores.table.to_pylist(), label_scores(scores).tolist(), strict=True
    ):
        del row["label_name"]
        for column in CLASS_INDICES:
            if row.get(column) is not None:
                row[column] = names[row[column]]
        row["label_score"] = None if np.isnan(label_score) else label_score
        rows[row["sample_id"]] = {name: value for name, value in row.items() if value is not None}
    return rows


def image_files(
    images: ImageSource, sample_ids: list[str], folder: Path, missing: MissingImages
) -> Iterator[tuple[str, Path]]:
    """The absolute path of each image, or the name of a copy in the folder where it has none."""
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
    with replacing(path) as temporary, csv_writer(temporary, scores.table.schema) as write:
        write(scores.table)
    return Exported()


def write_jsonl(scores: ScoreFile, path: Path) -> Exported:
    """Writes one JSON object for each sample; a missing value is null."""
    with replacing(path) as temporary, json_lines_writer(temporary, scores.table.schema) as write:
        for batch in scores.table.to_batches():  # a few thousand rows at a time become Python's
            write(pa.Table.from_batches([batch]))
    return Exported()


def write_cleanlab(scores: ScoreFile, path: Path) -> Exported:
    """Writes a table with the columns of cleanlab's label issues, in the order of the samples."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise CleaningError(
            f"{path} is neither CSV nor Parquet",
            "end the name in .csv or .parquet",
            parameter="out",
        )
    table = scores.table
    names = pa.array(class_list(scores), pa.string())
    issues = pa.table(
        {
            "sample_id": table["sample_id"],
            "is_label_issue": pc.fill_null(pc.greater(scores.column("label_margin"), 0.0), False),  # noqa: FBT003
            "label_score": to_arrow(label_scores(scores)),
            "given_label": table["label"],
            "predicted_label": table["nearest_label"],
            "given_label_name": table["label_name"].cast(pa.string()),
            "predicted_label_name": names.take(table["nearest_label"].combine_chunks()),
        }
    )
    write_table(issues, path)
    unknown = issues["label_score"].null_count
    return Exported([f"{unknown:,} samples have no label score"] if unknown else [])


def write_fiftyone(
    scores: ScoreFile,
    images: ImageSource,
    folder: Path,
    final: Path,  # noqa: ARG001 - all formats have the same parameters
) -> Exported:
    """Writes `labels.json` and the folder `data`.

    An image in a file of its own stays where it is, and the absolute path is its key; others are
    copied to `data`, and the name without the extension is the key. A key has one label, so each
    further sample of a file has a link to it in `data`, whose name is the key.
    """
    missing = MissingImages()
    rows, names = sample_rows(scores), class_list(scores)
    index = {name: label for label, name in enumerate(names)}
    copies = folder / "data"
    copies.mkdir()  # FiftyOne requires it even if it is empty
    labels = dict[str, Any]()
    for number, (sample_id, path) in enumerate(image_files(images, list(rows), copies, missing)):
        attributes = rows[sample_id] | {GIVEN_LABEL: rows[sample_id]["label"]}
        key = str(path) if path.is_absolute() else path.stem
        if key in labels:
            key = f"again{number:08d}"
            _link(path, copies / f"{key}{path.suffix}")
        labels[key] = {"label": index[attributes.pop("label")], "attributes": attributes}
    described = {"classes": names, "labels": labels}
    (folder / FIFTYONE_LABELS).write_text(json.dumps(described, indent=1), "utf-8")
    return Exported(missing.warnings())


def _link(path: Path, link: Path) -> None:
    """Makes a link to a file, or a copy of it where there are no links."""
    try:
        link.symlink_to(path)
    except OSError:
        shutil.copyfile(path, link)
