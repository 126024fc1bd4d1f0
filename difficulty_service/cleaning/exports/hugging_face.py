"""Scores and images as a dataset of the package `datasets`, as `save_to_disk` writes it."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from difficulty_service.cleaning.exports.samples import Exported, class_list
from difficulty_service.datasets.hugging_face import require_package
from difficulty_service.datasets.sample import has_labels
from difficulty_service.pages.stored_images import ImageSource, MissingImages
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import class_names_of
from difficulty_service.scores.score_columns import CLASS_INDICES


def write_hugging_face(
    scores: ScoreFile,
    images: ImageSource,
    folder: Path,
    final: Path,  # noqa: ARG001 - all formats have the same parameters
) -> Exported:
    """Writes a folder that `datasets.load_from_disk` opens; see `rows_of`."""
    missing = MissingImages()
    with rows_of(scores, images, folder.parent, missing) as dataset:
        dataset.save_to_disk(folder)
    return Exported(missing.warnings())


@contextmanager
def rows_of(
    scores: ScoreFile, images: ImageSource, place: Path, missing: MissingImages
) -> Iterator[Any]:
    """A dataset of the package `datasets`, which keeps files in a folder of `place` meanwhile.

    It has the encoded images or the texts, the columns of the score file, and those of classes with
    the names of the classes. Without labels it has none of these.
    """
    package = require_package("writing")
    labelled = has_labels(tuple(class_names_of(scores).values()))
    table = scores.table.drop_columns(["label_name"] if labelled else ["label", "label_name"])
    rows = {row["sample_id"]: row for row in table.to_pylist()}

    def samples() -> Iterator[dict[str, Any]]:
        for sample_id, stored in images.images(list(rows), missing.add):
            data = stored.read()
            image = {"bytes": data, "path": None}
            cell = {"text": data.decode()} if images.is_text else {"image": image}
            yield {**cell, **rows[sample_id]}

    sample = {"text": package.Value("string")} if images.is_text else {"image": package.Image()}
    features = package.Features({**sample, **_features(package, table, class_list(scores))})
    with tempfile.TemporaryDirectory(dir=place) as cache, _without_progress_bars(package):
        dataset = package.Dataset.from_generator(
            samples,
            features=features,
            cache_dir=cache,
            split=package.NamedSplit("train"),
            fingerprint=(scores.provenance.fingerprint or "scores")[:64],
        )
        yield dataset
        del dataset  # it maps files of the cache


def _features(package: Any, table: pa.Table, names: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401
    types = {pa.float64(): "float64", pa.float32(): "float32", pa.int32(): "int32"}
    return {
        field.name: package.ClassLabel(names=names)
        if field.name in CLASS_INDICES
        else package.Value(types.get(field.type, "string"))
        for field in table.schema
    }


@contextmanager
def _without_progress_bars(package: Any) -> Iterator[None]:  # noqa: ANN401
    shown = not package.are_progress_bars_disabled()
    package.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            package.enable_progress_bars()
