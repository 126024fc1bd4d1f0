"""One shard through a real backbone: order, bad images, batches and augmentation."""

import io
from functools import partial
from typing import BinaryIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from difficulty_service.base.errors import BackboneError, ImageError
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.extraction import schedules
from difficulty_service.extraction.batches import DECODE, FORWARD, READ
from difficulty_service.extraction.schedules import SMALL_SIZE
from difficulty_service.extraction.shards import BatchCallback, extract_shards, ignore_batch
from difficulty_service.extraction.shards import extract_shard as extract_shard_of_task
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.shard import ShardTable
from tests.average_pixel import SIZE, AveragePixel, make_dataset, png

LARGE = SMALL_SIZE + 8
"""Images so large that network and decoders take turns."""


class SmallDevice(AveragePixel):
    """A backbone on a device that has no room for more than `most` images."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def encode(self, images: Tensor) -> Tensor:
        features = super().encode(images)
        if len(images) > self.most:
            raise torch.OutOfMemoryError("out of memory")
        return features


def gradient() -> bytes:
    file = io.BytesIO()
    ramp = np.linspace(0, 255, 32, dtype=np.uint8)
    Image.fromarray(np.stack([np.outer(ramp // 16, ramp // 16)] * 3, axis=2)).save(file, "PNG")
    return file.getvalue()


def refuse() -> BinaryIO:
    raise ImageError("not a regular file")


def levels(count: int) -> list[ImageOpener]:
    return [partial(io.BytesIO, png(level)) for level in range(count)]


def extract_shard(
    dataset: Dataset,
    shard: int,
    backbone: AveragePixel,
    options: ExtractOptions,
    on_batch: BatchCallback = ignore_batch,
) -> tuple[ShardTable, list[BadImage]]:
    """Features of a shard, and its bad images."""
    task = ExtractionTask(dataset, backbone.name, options=options)
    extracted = extract_shard_of_task(task, backbone, shard, on_batch)
    return extracted.table, extracted.bad_images


def test_features_come_in_the_order_of_the_samples() -> None:
    table, bad = extract_shard(make_dataset(levels(70)), 0, AveragePixel(), ExtractOptions())

    assert bad == []
    assert table.sample_ids == [f"image {index}" for index in range(70)]
    torch.testing.assert_close(table.features[:, 0], torch.arange(70.0))
    assert torch.equal(table.labels, torch.arange(70) % 2)
    assert torch.equal(table.runs, torch.zeros(70, dtype=torch.int64))


def test_a_shard_holds_its_own_samples_only() -> None:
    table, _ = extract_shard(make_dataset(levels(10), 4), 2, AveragePixel(), ExtractOptions())

    assert table.sample_ids == ["image 8", "image 9"]


def test_bad_images_are_listed_and_the_others_kept() -> None:
    openers = levels(5)
    openers[1], openers[3] = refuse, partial(io.BytesIO, b"")

    table, bad = extract_shard(make_dataset(openers), 0, AveragePixel(), ExtractOptions())

    assert table.sample_ids == ["image 0", "image 2", "image 4"]
    torch.testing.assert_close(table.features[:, 0], torch.tensor([0.0, 2.0, 4.0]))
    assert [item.sample_id for item in bad] == ["image 1", "image 3"]
    assert bad[0].reason == "not a regular file"
    assert bad[1].reason


def test_the_first_bad_image_ends_a_run_that_stops_on_errors() -> None:
    openers = levels(5)
    openers[3] = refuse

    with pytest.raises(ImageError, match=r"image 3 in memory: not a regular file; on_error='skip'"):
        extract_shard(make_dataset(openers), 0, AveragePixel(), ExtractOptions(stop_on_error=True))


def test_a_shard_without_a_readable_image_has_no_features() -> None:
    table, bad = extract_shard(make_dataset([refuse]), 0, AveragePixel(), ExtractOptions())

    assert table.features.shape == (0, 3)
    assert len(bad) == 1


def test_batches_have_the_size_asked_for() -> None:
    backbone = AveragePixel()

    extract_shard(make_dataset(levels(50)), 0, backbone, ExtractOptions(batch_size=20, workers=1))

    assert backbone.batch_sizes == [20, 20, 10]


def test_batches_are_halved_until_they_fit_the_memory_of_the_device() -> None:
    backbone, options = SmallDevice(5), ExtractOptions(batch_size=20, workers=1)
    dataset = make_dataset(levels(50))

    with pytest.warns(UserWarning, match="too little memory for 20 samples") as warned:
        table, _ = extract_shard(dataset, 0, backbone, options)

    assert len(warned) == 1
    assert backbone.batch_sizes == [20, 10, *[5] * 10]
    whole, _ = extract_shard(dataset, 0, AveragePixel(), options)
    assert torch.equal(table.features, whole.features)


def test_a_device_without_room_for_one_image_is_an_error_that_names_the_cpu() -> None:
    options = ExtractOptions(batch_size=1, workers=1)

    with pytest.raises(BackboneError, match="too little memory for one sample at once; use device"):
        extract_shard(make_dataset(levels(3)), 0, SmallDevice(0), options)


def test_every_batch_is_reported_with_its_bad_images() -> None:
    openers = levels(50)
    openers[49] = refuse
    reports = []

    extract_shard(
        make_dataset(openers),
        0,
        AveragePixel(),
        ExtractOptions(batch_size=30, workers=1),
        lambda done, bad: reports.append((done, bad)),
    )

    assert reports == [(30, 0), (20, 1)]


def test_augmentation_gives_every_sample_its_runs_together() -> None:
    openers = [partial(io.BytesIO, gradient())] * 3
    options = ExtractOptions(augment_runs=4, batch_size=8, workers=1)
    backbone = AveragePixel()

    table, _ = extract_shard(make_dataset(openers), 0, backbone, options)

    assert table.sample_ids == [f"image {index}" for index in range(3) for _ in range(4)]
    assert table.runs.tolist() == [1, 2, 3, 4] * 3
    assert backbone.batch_sizes == [8, 4]
    assert len(table.features[:, 0].unique()) > 6


def test_augmentation_depends_on_the_seed_alone() -> None:
    dataset = make_dataset([partial(io.BytesIO, gradient())] * 3)
    first, again, other = (
        extract_shard(
            dataset, 0, AveragePixel(), ExtractOptions(augment_runs=2, seed=seed, workers=workers)
        )[0].features
        for seed, workers in ((0, 1), (0, 3), (1, 1))
    )

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("size", [SIZE, LARGE])
@pytest.mark.parametrize("images_per_turn", [1, 25, 10_000])
def test_many_threads_give_the_shards_of_one_thread_in_order(
    size: int, images_per_turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "IMAGES_PER_TURN", images_per_turn)
    dataset = make_dataset([*levels(45), refuse, *levels(44)], shard_size=20)
    shards = range(dataset.num_shards)
    one = [
        extract_shard(dataset, shard, AveragePixel(size), ExtractOptions(workers=1, batch_size=7))
        for shard in shards
    ]

    options = ExtractOptions(workers=8, batch_size=7)
    task = ExtractionTask(dataset, AveragePixel.name, options=options)
    many = list(extract_shards(task, AveragePixel(size), shards))

    assert [shard for shard, _ in many] == list(shards)
    for (_, extracted), (expected, expected_bad) in zip(many, one, strict=True):
        assert torch.equal(extracted.table.features, expected.features)
        assert extracted.table.sample_ids == expected.sample_ids
        assert extracted.bad_images == expected_bad


@pytest.mark.parametrize("size", [SIZE, LARGE])
def test_a_clock_changes_no_feature_and_sees_every_stage(size: int) -> None:
    dataset, clock = make_dataset(levels(30)), StageClock()
    expected, _ = extract_shard(dataset, 0, AveragePixel(size), ExtractOptions())

    task = ExtractionTask(dataset, AveragePixel.name)
    ((_, extracted),) = extract_shards(task, AveragePixel(size), [0], clock=clock)

    assert torch.equal(extracted.table.features, expected.features)
    assert [stage.name for stage in clock.stages()] == [READ, DECODE, FORWARD]
    assert all(stage.busy > 0 for stage in clock.stages())
