"""Scores, a map and small images as a Parquet file that Embedding Atlas opens."""

import shlex
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.errors import CleaningError, ImageError
from difficulty_service.base.files import replacing, require_output_file
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.base.tables import parquet_writer, to_arrow
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.cleaning.exports.samples import Exported, class_list, label_scores
from difficulty_service.features.description import is_store
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, small_picture
from difficulty_service.pages.stored_images import ImageSource, MissingImages, StoredImage
from difficulty_service.reports.map import ImageMap, draw_map, place_samples, placed_map
from difficulty_service.reports.map_points import tier_names
from difficulty_service.reports.tsne import MAX_POINTS
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import ScoredSamples, to_samples
from difficulty_service.scores.score_columns import CLASS_INDICES

PROJECTION = ("projection_x", "projection_y")
"""Columns of the map, as Embedding Atlas names those that it computes."""

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
"""An encoded image and the path of its file, as the package `datasets` stores them."""

PICTURE_SIZE = 256
"""Longest side of an image, in pixels."""

ROWS_AT_ONCE = 1024


def write_embedding_atlas(scores: ScoreFile, images: ImageSource, path: Path) -> Exported:
    """Writes one row for each sample: names of classes, scores, tier, map, and image or text.

    The map is that of the report, from the features beside the score file; of more samples than
    t-SNE places, that of the explorer. Without features there is none, and Embedding Atlas makes
    one of the images.
    """
    require_output_file(path, (".parquet",), CleaningError)
    samples, missing = to_samples(scores), MissingImages()
    table = _described(scores, samples)
    drawn = _draw(scores, samples)
    warnings = []
    if isinstance(drawn, str):
        warnings.append(drawn)
    else:
        for name, axis in zip(PROJECTION, drawn.positions.T, strict=True):
            table = table.append_column(name, to_arrow(_spread(axis, drawn.rows, len(table))))
    kind, cells = ("text", pa.string()) if images.is_text else ("image", IMAGE)
    schema = table.schema.append(pa.field(kind, cells))
    rows = {sample_id: row for row, sample_id in enumerate(samples.ids.to_pylist())}
    with replacing(path) as temporary, parquet_writer(temporary, schema) as write:
        cells_in_order = _cells(images, rows, missing)
        while some := list(islice(cells_in_order, ROWS_AT_ONCE)):
            chosen = table.take([rows[sample_id] for sample_id, _ in some])
            write(chosen.append_column(kind, pa.array([cell for _, cell in some], cells)))
    words = ["embedding-atlas", shlex.quote(str(path)), f"--{kind} {kind}"]
    if not isinstance(drawn, str):
        words[2:2] = [f"--x {PROJECTION[0]} --y {PROJECTION[1]}"]
    return Exported([*warnings, *missing.warnings()], [f"open it with: {' '.join(words)}"])


def _described(scores: ScoreFile, samples: ScoredSamples) -> pa.Table:
    """The columns of a score file with classes by name, the tier and the label score of each."""
    table = scores.table
    if not samples.has_labels:
        return table.drop_columns(["label", "label_name"])
    columns = {}
    names = pa.array(class_list(scores), pa.string())
    for name in table.column_names:
        if name in CLASS_INDICES:
            columns[name] = names.take(table[name].combine_chunks())
        elif name.removesuffix("_name") not in CLASS_INDICES:
            columns[name] = plain_column(table[name])
    if samples.compares_classes:
        tiers = pa.array([*tier_names(samples), None], pa.string())
        columns["tier"] = tiers.take(pa.array(samples.tiers))
    if "label_margin" in columns:
        columns["label_score"] = to_arrow(label_scores(scores))
    return pa.table(columns)


def _draw(scores: ScoreFile, samples: ScoredSamples) -> ImageMap | str:
    """The map of the samples, or the reason why there is none."""
    from difficulty_service.features.store import open_store

    folder = None if scores.path is None else scores.path.with_suffix(".features")
    if folder is None or not is_store(folder):
        where = "beside the scores" if folder is None else f"in {folder}"
        return f"there is no map, as there are no features {where}"
    store, drawn = open_store(folder), None
    if len(samples) <= MAX_POINTS:
        drawn = draw_map(samples, store)
    else:
        from difficulty_service.gaussians.fit_options import FitOptions
        from difficulty_service.scoring.fit_store import fit_store

        gaussians = fit_store(store, FitOptions("auto", "auto")).gaussians
        placed = place_samples(store, gaussians)
        drawn = None if placed is None else placed_map(placed, samples)
    return drawn or f"there is no map, as too few samples have features in {folder}"


def _spread(
    positions: NDArray[np.float64], rows: NDArray[np.int64], length: int
) -> NDArray[np.float32]:
    """Positions of some rows among all, NaN elsewhere. Shape (length,)."""
    column = np.full(length, np.nan, np.float32)
    column[rows] = positions
    return column


def _cells(
    images: ImageSource, rows: Mapping[str, int], missing: MissingImages
) -> Iterator[tuple[str, Any]]:
    """Each sample that can be read, with its text or small image."""

    def shrink(item: tuple[str, StoredImage]) -> tuple[str, Any]:
        sample_id, stored = item
        try:
            data = stored.read()
            if images.is_text:
                return sample_id, data.decode()
            picture = small_picture(data, PICTURE_SIZE, DEFAULT_MAX_PIXELS, stored.pixels)
        except (ImageError, OSError) as error:
            missing.add(sample_id, f"image: {error}")
            return sample_id, None
        return sample_id, {"bytes": picture, "path": stored.path and str(stored.path)}

    found = images.images(list(rows), missing.add)
    for sample_id, cell in map_in_order(shrink, found, num_workers()):
        if cell is not None:
            yield sample_id, cell
