"""Writes scores, or scores and images, in the formats of other tools."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray
from scipy.special import expit

from difficulty_service.base.errors import CleaningError, ImageError
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import json_lines_writer, plain_schema, to_arrow
from difficulty_service.datasets.hugging_face import require_package
from difficulty_service.review.class_folders import extension_of
from difficulty_service.review.clean import write_table
from difficulty_service.review.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import class_names_of


@dataclass(frozen=True)
class Exported:
    """What is to be said about an export: warnings, and how to open it where that depends on it."""

    warnings: Sequence[str] = ()
    instructions: Sequence[str] = ()


def class_list(scores: ScoreFile) -> list[str]:
    """Name of every class index from 0; an index without a known name is named by its number."""
    names = class_names_of(scores)
    present = [*names, *scores.column("nearest_label").drop_null().to_pylist()]
    return [names.get(label, str(label)) for label in range(max(present, default=-1) + 1)]


def label_scores(scores: ScoreFile) -> NDArray[np.float64]:
    """How well the label fits, from 0 to 1; lower is worse, below 0.5 another class fits better.

    It is the probability of the label against the best other class, if both are as frequent and
    Gaussian: the logistic function of minus half the label margin.
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
    copied to `data`, and the name without the extension is the key.
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


CLASS_COLUMNS = ("label", "nearest_label")


def write_hugging_face(
    scores: ScoreFile,
    images: ImageSource,
    folder: Path,
    final: Path,  # noqa: ARG001 - all formats have the same parameters
) -> Exported:
    """Writes a folder that `datasets.load_from_disk` opens.

    It has the encoded images, `label` and `nearest_label` with the names of the classes, and the
    other columns of the score file.
    """
    package = require_package("writing")
    missing = MissingImages()
    rows = {row["sample_id"]: row for row in scores.table.drop_columns("label_name").to_pylist()}

    def samples() -> Iterator[dict[str, Any]]:
        for sample_id, stored in images.images(list(rows), missing.add):
            data = stored.read()
            image = {"bytes": data, "path": None}
            cell = {"text": data.decode()} if images.is_text else {"image": image}
            yield {**cell, **rows[sample_id]}

    sample = {"text": package.Value("string")} if images.is_text else {"image": package.Image()}
    features = package.Features({**sample, **_features(package, scores)})
    with tempfile.TemporaryDirectory(dir=folder.parent) as cache, _without_progress_bars(package):
        dataset = package.Dataset.from_generator(
            samples,
            features=features,
            cache_dir=cache,
            split=package.NamedSplit("train"),
            fingerprint=(scores.provenance.fingerprint or "scores")[:64],
        )
        dataset.save_to_disk(folder)
        del dataset  # it maps files of the cache
    return Exported(missing.warnings())


def _features(package: Any, scores: ScoreFile) -> dict[str, Any]:  # noqa: ANN401
    types = {pa.float64(): "float64", pa.float32(): "float32"}
    columns = {
        field.name: package.Value(types.get(field.type, "string")) for field in scores.table.schema
    }
    del columns["label_name"]
    classes = dict.fromkeys(CLASS_COLUMNS, package.ClassLabel(names=class_list(scores)))
    return {**columns, **classes}


@contextmanager
def _without_progress_bars(package: Any) -> Iterator[None]:  # noqa: ANN401
    shown = not package.are_progress_bars_disabled()
    package.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            package.enable_progress_bars()


LOCAL_FILES = "/data/local-files/?d="
"""Address at which Label Studio serves files of its document root."""

SHOWN = ("sample_id", "label", "nearest_label", "label_margin", "rmd", "percentile")
"""Columns that are data of the task and so can be sorted and filtered by."""


def write_label_studio(
    scores: ScoreFile, images: ImageSource, folder: Path, final: Path
) -> Exported:
    """Writes `tasks.json` and `label_config.xml`.

    The prediction of a task is its label, with a score from 0 to 1 that is low where another class
    fits better; all columns of the score file are the `meta` of the task. Images in files of their
    own stay where they are, others are copied into the folder; texts are part of the tasks.
    """
    missing = MissingImages()
    rows = sample_rows(scores)
    version = f"difficulty-service {scores.provenance.package_version or ''}".strip()
    if images.is_text:
        texts = images.images(list(rows), missing.add)
        tasks = [_task(rows[key], "text", text.read().decode(), version) for key, text in texts]
        _write(folder, tasks, label_config(class_list(scores), "text"))
        return Exported(missing.warnings())
    copies = folder / "images"
    copies.mkdir()
    files = {
        sample_id: final / "images" / path
        for sample_id, path in image_files(images, list(rows), copies, missing)
    }
    # Label Studio serves what is below the folder above the one that all images are in.
    folders = [file.parent for file in files.values()] or [final]
    root = Path(os.path.commonpath(folders)).parent
    tasks = [
        _task(rows[key], "image", LOCAL_FILES + quote(path.relative_to(root).as_posix()), version)
        for key, path in files.items()
    ]
    _write(folder, tasks, label_config(class_list(scores), "image"))
    served = (
        "Label Studio serves the images if it is started with "
        "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
        f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root}"
    )
    return Exported(missing.warnings(), [served])


def _write(folder: Path, tasks: Sequence[Mapping[str, Any]], interface: str) -> None:
    (folder / "tasks.json").write_text(json.dumps(tasks, indent=1, ensure_ascii=False), "utf-8")
    (folder / "label_config.xml").write_text(interface, "utf-8")


def label_config(names: Sequence[str], kind: str) -> str:
    """The labelling interface: the sample, an `image` or a `text`, and a choice of one class."""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in names)
    return (
        f'<View>\n  <{kind.capitalize()} name="{kind}" value="${kind}"/>\n'
        f'  <Choices name="label" toName="{kind}" choice="single">\n{choices}\n'
        "  </Choices>\n</View>\n"
    )


def _task(row: Mapping[str, Any], kind: str, sample: str, version: str) -> dict[str, Any]:
    choice = {
        "from_name": "label",
        "to_name": kind,
        "type": "choices",
        "value": {"choices": [row["label"]]},
    }
    prediction = {"model_version": version, "result": [choice]}
    if "label_score" in row:
        prediction["score"] = row["label_score"]
    return {
        "data": {kind: sample, **{name: row[name] for name in SHOWN if name in row}},
        "meta": dict(row),
        "predictions": [prediction],
    }
