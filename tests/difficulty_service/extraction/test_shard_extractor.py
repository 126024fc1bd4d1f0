"""An actor reads ahead into the shards that are announced, and gives each as it is alone."""

import io
from collections.abc import Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import BinaryIO

import numpy as np
import pytest
import torch

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.datasets.sample import Dataset
from difficulty_service.extraction.engines import shard_extractor
from difficulty_service.extraction.engines.shard_extractor import ShardExtractor
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from tests.factories import png_of

SHARD_SIZE, SHARDS = 4, 5
COUNTER = SimpleNamespace(report=SimpleNamespace(remote=lambda *_: None))


@pytest.fixture
def opened() -> list[int]:
    """The images that were opened, by number."""
    return []


@pytest.fixture
def task(opened: list[int]) -> ExtractionTask:
    """Shards of four images, each of which is one batch."""
    count = SHARD_SIZE * SHARDS

    def open_image(number: int) -> BinaryIO:
        opened.append(number)
        return io.BytesIO(png_of((number, 2 * number, 0), (32, 32)))

    dataset = Dataset(
        location="memory",
        class_names=("a", "b"),
        sample_ids=[f"image {number}" for number in range(count)],
        labels=np.arange(count, dtype=np.int32) % 2,
        fingerprint="0",
        shard_size=SHARD_SIZE,
        open_images=lambda numbers: iter([partial(open_image, number) for number in numbers]),
    )
    options = ExtractOptions(batch_size=SHARD_SIZE, workers=1)
    return ExtractionTask(dataset, "builtin", BackboneOptions(), options)


def loaded(task: ExtractionTask, announced: Sequence[int] = ()) -> ShardExtractor:
    extractor = ShardExtractor()
    extractor.load(task)
    for shard in announced:
        extractor.announce(shard)
    return extractor


def test_the_next_shard_is_read_while_the_one_before_is_extracted(
    task: ExtractionTask, opened: list[int]
) -> None:
    extractor = loaded(task, announced=[0, 1])

    extractor.extract(0, COUNTER)

    assert sorted(opened) == list(range(2 * SHARD_SIZE))


def test_shards_that_were_read_ahead_of_one_that_failed_are_extracted_when_they_are_asked_for(
    task: ExtractionTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractor = loaded(task, announced=[0, 1])

    def fail(_: object, __: object, shards: Iterable[int], *___: object, **____: object) -> None:
        assert [*shards] == [0, 1]
        raise ValueError("no room")

    with monkeypatch.context() as failing:
        failing.setattr(shard_extractor, "extract_shards", fail)
        with pytest.raises(ValueError, match="no room"):
            extractor.extract(0, COUNTER)

    names = [extractor.extract(shard, COUNTER).table.sample_ids[0] for shard in (1, 0)]
    assert names == [f"image {SHARD_SIZE}", "image 0"]


def test_a_shard_that_was_not_announced_is_not_read(
    task: ExtractionTask, opened: list[int]
) -> None:
    loaded(task).extract(0, COUNTER)

    assert sorted(opened) == list(range(SHARD_SIZE))


@pytest.mark.parametrize(
    "announced",
    [[], [0, 1, 2, 3, 4], [1, 2], [0, 1, 3], [0, 0, 1, 1]],
    ids=["none", "all", "not the first", "not the third", "twice"],
)
def test_each_shard_has_the_features_that_it_has_alone(
    task: ExtractionTask, announced: list[int], opened: list[int]
) -> None:
    extractor = loaded(task, announced)
    shards = sorted(set(announced)) or [0, 1]

    results = [extractor.extract(shard, COUNTER) for shard in shards]

    assert len(opened) == SHARD_SIZE * len(shards)
    backbone = load_backbone("builtin", BackboneOptions())
    for shard, result in zip(shards, results, strict=True):
        alone = extract_shard(task, backbone, shard)
        assert result.table.sample_ids == alone.table.sample_ids
        torch.testing.assert_close(result.table.features, alone.table.features, rtol=0, atol=0)


def test_a_shard_that_is_announced_too_late_is_extracted_once(
    task: ExtractionTask, opened: list[int]
) -> None:
    extractor = loaded(task)

    for shard in range(2):
        extractor.extract(shard, COUNTER)
        extractor.announce(shard)
    extractor.extract(2, COUNTER)

    assert sorted(opened) == list(range(3 * SHARD_SIZE))
