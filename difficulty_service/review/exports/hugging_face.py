"""Scores and images as a dataset of the package `datasets`, as `save_to_disk` writes it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from difficulty_service.datasets.hugging_face import require_package
from difficulty_service.review.exports.samples import Exported, class_list
from difficulty_service.review.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile

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
