"""What many tests begin with: folders of images, features and scores."""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from difficulty_service.base.files import content_digest
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import FeatureStore, create_store
from difficulty_service.marks.record import MarkedSample, Marks
from difficulty_service.scores.file import to_schema, write_scores
from difficulty_service.scores.provenance import Provenance

CLASSES = ("bird", "cat", "dog")


def png_of(colour: str | tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> bytes:
    """A PNG of one colour; `size` is its width and height."""
    target = io.BytesIO()
    Image.new("RGB", size, colour).save(target, "PNG")
    return target.getvalue()


def write_image_folder(
    folder: Path,
    classes: Sequence[str] = CLASSES,
    each: int = 8,
    size: tuple[int, int] = (24, 32),
    seed: int | np.random.Generator = 0,
    name: str = "{}.png",
) -> Path:
    """Writes noise in a folder per class, each class brighter than the one before; gives `folder`.

    Args:
        each: Number of images of a class.
        size: Height and width of an image.
        name: Name of the file of an image, from its number in its class.
    """
    generator = np.random.default_rng(seed)
    for label, class_name in enumerate(classes):
        (folder / class_name).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            pixels = generator.integers(0, 120, (*size, 3)) + 60 * label
            path = folder / class_name / name.format(number)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    return folder


TAGS, WRONG_TAG, MISSING_TAG = ("blue", "green", "red"), (5, "red"), (9, "blue")
"""Tags of `write_tagged_images`; image and tag of the one that is wrong and the one missing."""


def write_tagged_images(path: Path, number: int = 60) -> Path:
    """Writes a table of noise with a tag for each colour that is bright, but for two errors."""
    random = np.random.default_rng(0)
    right = random.random((number, 3)) < 0.4
    right[WRONG_TAG[0]], right[MISSING_TAG[0]] = (False, True, False), (True, False, True)
    encoded = []
    for row in right:
        pixels = 200 * row[::-1] + 30 + random.integers(-25, 25, (16, 16, 3))
        file = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "PNG")
        encoded.append(file.getvalue())
    for image, tag in (WRONG_TAG, MISSING_TAG):
        right[image, TAGS.index(tag)] ^= True
    tags = [[tag for tag, each in zip(TAGS, row, strict=True) if each] for row in right]
    pq.write_table(pa.table({"image": encoded, "tags": tags}), path)
    return path


def write_hub_file(cache: Path, repository: str, filename: str) -> Path:
    """Writes an empty file into a cache of the hub, as if it had been downloaded."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    (snapshot / filename).write_bytes(b"")
    return snapshot / filename


def store_of(
    folder: Path,
    features: Tensor,
    labels: Tensor,
    /,
    ids: Sequence[str] | None = None,
    shard_size: int | None = None,
    contents: Sequence[bytes] | None = None,
    **description: object,
) -> FeatureStore:
    """Writes a feature store of three classes, cat, dog and owl.

    Args:
        features: Shape (samples, dim), or (samples, runs, dim) of several augmentation runs.
        labels: Shape (samples,).
        ids: Ids of the samples; by default `s0`, `s1` and so on.
        shard_size: Samples of a shard; by default all.
        contents: What the samples were read from; by default that is not known.
        description: Keys of the description that differ from the usual ones.
    """
    runs = features[:, None] if features.ndim == 2 else features
    samples, num_runs, _ = runs.shape
    size = shard_size or max(1, samples)
    starts = range(0, max(1, samples), size)
    usual = {
        "class_names": ("cat", "dog", "owl"),
        "num_shards": len(starts),
        "shard_size": size,
        "num_samples": samples,
        "augment_runs": num_runs if num_runs > 1 else 0,
        "dataset": "photos",
        "fingerprint": "f",
        "seed": 0,
    }
    store = create_store(folder, FeatureDescription.of(usual | description))
    numbers = torch.tensor(store.description.run_numbers)
    ids = [f"s{row}" for row in range(samples)] if ids is None else ids
    for shard, start in enumerate(starts):
        rows = slice(start, start + size)
        table = ShardTable(
            [sample_id for sample_id in ids[rows] for _ in numbers],
            labels[rows].repeat_interleave(num_runs),
            numbers.repeat(len(labels[rows])),
            runs[rows].flatten(0, 1),
            contents and [content_digest(data) for data in contents[rows] for _ in numbers],
        )
        store.write_shard(shard, table, [])
    return store


def named(marks: Mapping[str, MarkedSample]) -> Marks:
    """Marks of the samples with these ids, whatever ids the marks have."""
    return Marks.of(replace(mark, sample_id=sample_id) for sample_id, mark in marks.items())


def score_table(
    labels: Sequence[int],
    classes: Sequence[str] = ("cat", "dog", "owl"),
    ids: Sequence[str] | None = None,
    **columns: object,
) -> pa.Table:
    """A table of scores, with the types of a score file.

    Args:
        ids: Ids of the samples; by default `s0`, `s1` and so on.
        columns: The other columns, by their names.
    """
    known = {
        "sample_id": [f"s{row}" for row in range(len(labels))] if ids is None else list(ids),
        "label": labels,
        "label_name": [classes[label] for label in labels],
    }
    return to_schema(pa.table(known | columns))


def write_score_file(
    path: Path, scores: Mapping[str, float | None], column: str = "rmd", **provenance: object
) -> Path:
    """Writes a score file of one class that holds one score for each id; gives `path`."""
    table = score_table([0] * len(scores), ids=list(scores), **{column: list(scores.values())})
    write_scores(path, table, Provenance.of(provenance))
    return path


def unpack_map(content: bytes) -> dict[str, Any]:
    """The facts of `MapPoints.packed_bytes`, with their columns as arrays, `rows` included."""
    (length,) = struct.unpack_from("<I", content)
    facts = json.loads(content[4 : 4 + length])
    start, columns = 4 + length, {}
    for name, (kind, number) in facts["columns"].items():
        dtype = np.dtype(kind.removesuffix("Array").lower())
        columns[name] = np.frombuffer(content, dtype, number, start)
        start += -(-columns[name].nbytes // 4) * 4
    assert start == len(content)
    even = np.arange(facts["count"]) * (facts["step"] or 0)
    return {"rows": even, **facts, **columns}
