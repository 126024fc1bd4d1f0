"""A dataset as ours reads it, and as it is after two decisions."""

import contextlib
import csv
import io
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import difficulty_service as ds
from benchmarks.formats.case import Reading, Row
from benchmarks.formats.scenes import COLOURS, Scene, encoded
from difficulty_service.base.errors import ImageError
from difficulty_service.cli import create_app
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision, Sample
from difficulty_service.images.crops import Crop

CLEANED = "cleaned.parquet"
"""The table of samples that are no boxes."""

_ALIKE = 40
"""Up to which difference of a channel a colour is the same, after JPEG."""

_LEAST = 0.2
"""Share of a crop that an object has at least; the square around it has the rest."""


@dataclass(frozen=True)
class Decided:
    """Two decisions: one sample has another class, and another one is gone.

    Attributes:
        relabelled: The row as it was.
        label: Its new class.
        dropped: The row that is gone.
    """

    relabelled: Row
    label: str
    dropped: Row


def name_of(path: str, scenes: Sequence[Scene]) -> str:
    """Name of the scene whose path a path ends with; the path itself where there is none."""
    stem = path.rsplit(".", 1)[0] if path.lower().endswith((".png", ".jpg")) else path
    fitting = [scene.name for scene in scenes if f"/{stem}".endswith(f"/{scene.name}")] or [
        scene.name for scene in scenes if scene.name.rsplit("/", 1)[-1] == stem.rsplit("/", 1)[-1]
    ]
    return max(fitting, key=len) if fitting else path


def opened(place: str, split: str | None) -> Dataset:
    """The dataset, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return open_dataset(place, DatasetOptions(split=split))


def read(dataset: Dataset, split: str, scenes: Sequence[Scene]) -> Reading:
    """What a dataset holds; boxes in pixels of the upright image.

    Args:
        scenes: Those of the split.
    """
    if dataset.scenes is None:
        return _read_classes(dataset, split, scenes)
    whole = dataset.scenes
    by_name = {scene.name: scene for scene in scenes}
    rows: list[Row] = []
    for row, sides, label in zip(
        whole.rows.tolist(), whole.sides.tolist(), dataset.labels.tolist(), strict=True
    ):
        name = name_of(whole.names[row], scenes)
        scene = by_name.get(name, Scene(name))
        corners = _upright(sides, whole.frames[row], scene)
        rows.append((split, name, dataset.class_names[label], corners))
    unseen = _unseen(dataset, scenes, rows)
    return Reading(rows, dataset.class_names, len(whole.names), len(dataset.skipped), unseen)


def _unseen(dataset: Dataset, scenes: Sequence[Scene], rows: Sequence[Row]) -> int:
    """Number of boxes whose crops do not show the colour of the object that is there."""
    colours = {
        scene.name: [(thing.sides, COLOURS[thing.label]) for thing in scene.things]
        for scene in scenes
    }
    samples = [each for shard in range(dataset.num_shards) for each in dataset.read_shard(shard)]
    unseen = 0
    for sample, (_, name, _, sides) in zip(samples, rows, strict=True):
        near = min(
            colours.get(name, []),
            key=lambda each, sides=sides: max(map(abs, np.subtract(each[0], sides))),  # type: ignore[misc]
            default=None,
        )
        unseen += near is None or not _shows(sample, near[1])
    return unseen


def _shows(sample: Sample, colour: tuple[int, int, int]) -> bool:
    try:
        with sample.open() as file, Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB")).astype(int)
    except ImageError:
        return False
    return bool((np.abs(pixels - colour).max(axis=2) < _ALIKE).mean() > _LEAST)


def _upright(
    sides: Sequence[float], frame: tuple[float, float] | None, scene: Scene
) -> tuple[float, ...]:
    # The same step that cuts a crop, which has no other entrance.
    place = Crop((*sides,), frame)._placing(scene.size, scene.orientation)  # type: ignore[arg-type]
    corners = place(sides[:2]), place(sides[2:])
    (left, right), (top, bottom) = (sorted(ends) for ends in zip(*corners, strict=True))
    return left, top, right, bottom


def _read_classes(dataset: Dataset, split: str, scenes: Sequence[Scene]) -> Reading:
    """Images are known by their pixels, for rows of a table have no names."""
    known = {_pixels(encoded(scene)): scene.name for scene in scenes}
    rows: list[Row] = []
    for shard in range(dataset.num_shards):
        for sample in dataset.read_shard(shard):
            with sample.open() as file:
                pixels = _pixels(file.read())
            rows.append((split, known.get(pixels, "?"), dataset.class_names[sample.label], ()))
    return Reading(rows, dataset.class_names, len(rows), len(dataset.skipped))


def _pixels(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB")).tobytes()


def clean(dataset: Dataset, place: Path, split: str | None, found: Reading) -> Decided:
    """Writes the dataset with two decisions beside it, into the folder `cleaned`."""
    before = found.rows[0]
    label = next(name for name in dataset.class_names if name != before[2])
    out = place.parent / "cleaned"
    changes = {dataset.sample_ids[0]: label, dataset.sample_ids[-1]: None}
    if dataset.revise is None:
        _clean_by_command(dataset, out, split, changes)
    else:
        _write(out, dataset.revise(changes))
    return Decided(before, label, found.rows[-1])


def _write(out: Path, revision: Revision) -> None:
    root = Path(revision.root.path)
    for name in revision.others:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, out / name)
    for name, content in revision.changed.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (out / name).write_bytes(content)
        else:
            content(out / name)


def _clean_by_command(
    dataset: Dataset, out: Path, split: str | None, changes: dict[str, str | None]
) -> None:
    """Samples that are no boxes are written as a table by `difficulty clean`."""
    scores, marks = out.parent / "scores.parquet", out.parent / "marks.csv"
    out.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds.score_dataset(
            dataset.location, split=split, backbone="builtin", out=scores, progress=False
        )
    with marks.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("sample_id", "mark", "label"))
        for sample_id, label in changes.items():
            writer.writerow((sample_id, "drop" if label is None else "relabel", label or ""))
    words = ["clean", str(scores), "--marks", str(marks), "--out", str(out / CLEANED)]
    with contextlib.redirect_stdout(io.StringIO()):
        create_app()(words)
