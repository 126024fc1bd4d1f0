"""Scores and images as a dataset of the package `datasets`, as `save_to_disk` writes it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from difficulty_service.base.errors import MissingPackage
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

    Raises:
        MissingPackage: The package `datasets` is not installed.
    """
    package = _package()
    missing = MissingImages()
    rows = {row["sample_id"]: row for row in scores.table.drop_columns("label_name").to_pylist()}

    def samples() -> Iterator[dict[str, Any]]:
        for sample_id, image in images.images(list(rows), missing.add):
            data = image.read()
            cell = {"text": data.decode()} if images.is_text else {"image": _cell(data)}
            yield {**cell, **rows[sample_id]}

    sample = {"text": package.Value("string")} if images.is_text else {"image": package.Image()}
    features = package.Features({**sample, **_features(package, scores)})
    with (
        tempfile.TemporaryDirectory(dir=folder.parent) as cache,
        _without_progress_bars(package),
    ):
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


def _package() -> Any:  # noqa: ANN401 - the package ships no types
    try:
        import datasets
    except ImportError as error:
        raise MissingPackage(
            "writing a Hugging Face dataset needs the package `datasets`, which is not installed",
            "pip install 'difficulty-service[hugging-face]'",
        ) from error
    return datasets


def _cell(data: bytes) -> dict[str, bytes | None]:
    return {"bytes": data, "path": None}


def _features(package: Any, scores: ScoreFile) -> dict[str, Any]:  # noqa: ANN401
    columns = {field.name: package.Value(_type_name(field.type)) for field in scores.table.schema}
    del columns["label_name"]
    classes = dict.fromkeys(CLASS_COLUMNS, package.ClassLabel(names=class_list(scores)))
    return {**columns, **classes}


def _type_name(kind: pa.DataType) -> str:
    return {pa.float64(): "float64", pa.float32(): "float32"}.get(kind, "string")


@contextmanager
def _without_progress_bars(package: Any) -> Iterator[None]:  # noqa: ANN401
    shown = not package.are_progress_bars_disabled()
    package.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            package.enable_progress_bars()
