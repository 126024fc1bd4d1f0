"""One batch of images on its way to features: read, decoded, encoded."""

import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.datasets.sample import ImageOpener, Sample
from difficulty_service.errors import BackboneError, ImageError, Setting
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.feature_store.part import BadImage
from difficulty_service.images.preparation import (
    Augmentation,
    normalise,
    prepare,
    prepare_runs,
    stack,
)

READ, DECODE, FORWARD, APPEND = "read", "decode and resize", "normalise and forward", "append"

Group = tuple[int, list[Sample]]
"""A shard and some of its samples."""


@dataclass(frozen=True)
class Batch:
    """Some samples of one shard, in order, on their way through the network.

    Attributes:
        shard: Shard that the samples belong to.
        kept: Samples whose image could be read.
        bad: Images that could not be read.
        values: Before encoding, uint8 views of the images that could be read, shape
            (samples * runs, 3, size, size); afterwards their features, shape (samples * runs, dim).
            None where no image could be read.
    """

    shard: int
    kept: list[Sample]
    bad: list[BadImage]
    values: Tensor | None


def prepare_batch(
    group: Group, backbone: Backbone, options: ExtractOptions, clock: StageClock | None
) -> Batch:
    """Reads and decodes the samples of a batch."""
    shard, samples = group
    kept: list[Sample] = []
    bad: list[BadImage] = []
    views: list[Tensor] = []
    began, read_before = time.perf_counter(), clock.seconds_here(READ) if clock else 0.0
    for sample in samples:
        opener = clock.reading(sample.open, READ) if clock else sample.open
        try:
            views += _views(sample.sample_id, opener, backbone, options)
            kept.append(sample)
        except ImageError as error:
            bad.append(BadImage(sample.sample_id, str(error)))
    if clock:
        reading = clock.seconds_here(READ) - read_before
        clock.add(DECODE, time.perf_counter() - began - reading)
    return Batch(shard, kept, bad, stack(views) if views else None)


def _views(
    sample_id: str, opener: ImageOpener, backbone: Backbone, options: ExtractOptions
) -> Iterable[Tensor]:
    """Views of one image, each of shape (3, size, size)."""
    if not options.augment_runs:
        return [prepare(opener, backbone.preprocessing, options.mode, options.max_pixels)]
    return prepare_runs(
        opener,
        backbone.preprocessing,
        sample_id,
        Augmentation(runs=options.augment_runs, seed=options.seed),
        options.mode,
        options.max_pixels,
    )


def encode_batch(
    batch: Batch, backbone: Backbone, network: BackboneOptions, clock: StageClock | None
) -> Batch:
    """Normalises the views of a batch and turns them into features, on the backbone's device.

    Raises:
        BackboneError: The device has too little memory for a batch of this size.
    """
    if batch.values is None:
        return batch
    with clock.busy(FORWARD) if clock else nullcontext():
        try:
            views = batch.values
            if network.device.type == "cuda":
                views = views.pin_memory()  # so that the copy to the GPU waits for nothing
            on_device = views.to(network.device, non_blocking=True)
            images = normalise(on_device, backbone.preprocessing, network.precision)
            return replace(batch, values=backbone.encode(images).float())
        except torch.OutOfMemoryError:
            raise BackboneError(
                f"{network.device} has too little memory for {len(batch.values)} images at once",
                "use ",
                Setting("batch_size", max(1, len(batch.values) // 2)),
                parameter="batch_size",
            ) from None


def fetch_batch(batch: Batch, clock: StageClock | None) -> Batch:
    """The batch with its features on the CPU, once they are computed."""
    if batch.values is None:
        return batch
    with clock.busy(FORWARD) if clock else nullcontext():
        return replace(batch, values=batch.values.cpu())
