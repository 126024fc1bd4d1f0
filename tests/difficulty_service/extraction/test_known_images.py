"""Extraction with the features of an earlier run."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from difficulty_service.base.errors import ImageError
from difficulty_service.datasets.sample import Dataset, FileOpener, ImageOpener
from difficulty_service.extraction.schedules import SMALL_SIZE
from difficulty_service.extraction.shard_writer import ShardWriter
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.previous import open_previous, prepare_store
from difficulty_service.features.shard import map_shard, read_appearance, write_batch
from difficulty_service.images.appearance import NUMBERS, from_struct, measure, sample_pixels
from tests.average_pixel import SIZE, AveragePixel, make_dataset, png

DESCRIPTION = {"num_shards": 1, "shard_size": 100, "augment_runs": 0, "class_names": ["a", "b"]}


def opener(data: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)


def unreachable() -> BinaryIO:
    raise AssertionError("a file that has not changed is read")


def extract_into(folder: Path, dataset: Dataset, backbone: AveragePixel) -> Tensor:
    """Extracts a dataset as the pipeline does; gives the features."""
    store = prepare_store(
        folder, FeatureDescription.of(DESCRIPTION | {"fingerprint": dataset.fingerprint})
    )
    previous = open_previous(store)
    task = ExtractionTask(dataset, "average", options=ExtractOptions(batch_size=4))
    task = replace(task, known=previous.known if previous else None)
    writer = ShardWriter(store, dataset, previous)
    writer.write(0, extract_shard(task, backbone, 0))
    return store.read_shard(0).features


@pytest.mark.parametrize("size", [SIZE, SMALL_SIZE + 8])
def test_files_that_have_not_changed_are_not_even_read(tmp_path: Path, size: int) -> None:
    files = [tmp_path / f"{level}.png" for level in range(10)]
    for level, file in enumerate(files):
        file.write_bytes(png(level))
    before: list[ImageOpener] = [FileOpener(str(file), partial_open(file)) for file in files]
    features = extract_into(tmp_path / "store", make_dataset(before), AveragePixel(size))
    backbone = AveragePixel(size)

    after: list[ImageOpener] = [FileOpener(str(file), unreachable) for file in files]
    after[3] = FileOpener(str(files[3]), partial_open(files[3]))
    files[3].write_bytes(png(200) + b"longer")
    again = extract_into(tmp_path / "store", make_dataset(after, fingerprint="after"), backbone)

    assert sum(backbone.batch_sizes) == 1
    assert again[3, 0] == pytest.approx(200, abs=1e-3)
    rows = [row for row in range(10) if row != 3]
    assert torch.equal(again[rows], features[rows])


def partial_open(file: Path) -> Callable[[], BinaryIO]:
    return lambda: file.open("rb")


def test_images_in_a_table_are_recognised_by_their_bytes(tmp_path: Path) -> None:
    backbone = AveragePixel()
    extract_into(tmp_path, make_dataset([opener(png(level)) for level in range(10)]), backbone)

    levels = [4, 9, 9, 77, 0]
    after = make_dataset([opener(png(level)) for level in levels], fingerprint="after")
    features = extract_into(tmp_path, after, backbone)

    assert sum(backbone.batch_sizes) == 11
    torch.testing.assert_close(features[:, 0], torch.tensor(levels, dtype=torch.float32))


def test_an_image_that_cannot_be_read_any_more_is_bad(tmp_path: Path) -> None:
    def refuse() -> BinaryIO:
        raise ImageError("no such file")

    extract_into(tmp_path, make_dataset([opener(png(1)), opener(png(2))]), AveragePixel())
    after = make_dataset([opener(png(2)), refuse], fingerprint="after")

    features = extract_into(tmp_path, after, AveragePixel())

    store = prepare_store(tmp_path, FeatureDescription.of(DESCRIPTION | {"fingerprint": "after"}))
    assert features[:, 0].tolist() == pytest.approx([2], abs=1e-3)
    assert [(bad.sample_id, bad.reason) for bad in store.bad_images()] == [
        ("after 1", "no such file")
    ]


def test_how_images_look_is_kept_with_their_features_and_reused(tmp_path: Path) -> None:
    levels = [3, 250, 128, 90]
    images = [png(level) for level in levels]
    extract_into(tmp_path, make_dataset([opener(data) for data in images]), AveragePixel())

    moved = [images[2], png(40), images[1], images[0]]
    extract_into(
        tmp_path,
        make_dataset([opener(data) for data in moved], fingerprint="after"),
        AveragePixel(),
    )

    numbers = from_struct(read_appearance(tmp_path / "part-00000.arrow"))
    pixels = [np.array(Image.open(io.BytesIO(data))) for data in moved]
    expected = measure([sample_pixels(each) for each in pixels])
    np.testing.assert_array_equal(numbers, expected)
    assert len(np.unique(numbers[:, NUMBERS.index("p25")])) == 4


def test_features_of_a_version_without_such_numbers_are_reused_without_them(
    tmp_path: Path,
) -> None:
    images = [png(level) for level in (3, 250)]
    extract_into(tmp_path, make_dataset([opener(data) for data in images]), AveragePixel())
    file = tmp_path / "part-00000.arrow"
    batch, _ = map_shard(file)
    write_batch(file, batch.drop_columns(["appearance"]))

    added = [images[1], png(90), images[0]]
    extract_into(
        tmp_path,
        make_dataset([opener(data) for data in added], fingerprint="after"),
        AveragePixel(),
    )

    numbers = from_struct(read_appearance(file))
    assert np.isnan(numbers).all(axis=1).tolist() == [True, False, True]
