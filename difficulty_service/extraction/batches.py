"""What happens to one batch of images on its way to features: read, decoded, encoded."""

import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import ImageOpener, Sample
from difficulty_service.errors import BackboneError, ImageError
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.feature_store.part import BadImage
from difficulty_service.images.preparation import (
    DEFAULT_MAX_PIXELS,
    Augmentation,
    Mode,
    normalise,
    prepare,
    prepare_runs,
    stack,
)

READ, DECODE, FORWARD, APPEND = "read", "decode and resize", "normalise and forward", "append"

Group = tuple[int, list[Sample]]
"""A shard and some of its samples."""


@dataclass(frozen=True)
class ExtractOptions:
    """How images become features.

    Attributes:
        batch_size: Images in one forward pass; None for what suits the device.
        augment_runs: Randomly augmented passes over each image; 0 for one plain pass.
        seed: Of the augmentation.
        mode: `fast` or `exact` preprocessing.
        max_pixels: Larger images are refused.
        stop_on_error: End at the first bad image instead of listing it.
        workers: Threads that read and decode, and on a CPU run small networks as well.
        device: Where the backbone is.
        precision: dtype of the backbone's input.
    """

    batch_size: int | None = None
    augment_runs: int = 0
    seed: int = 0
    mode: Mode = "fast"
    max_pixels: int = DEFAULT_MAX_PIXELS
    stop_on_error: bool = False
    workers: int = 2
    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32


@dataclass(frozen=True)
class Batch:
    """Some samples of one shard, in order, on their way through the network.

    Attributes:
        shard: Whose they are.
        kept: Those that could be read.
        bad: Those that could not.
        values: Of those kept: uint8 views of shape (samples * runs, 3, size, size) first, features
            of shape (samples * runs, dim) once they are encoded. None where nothing could be read.
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
    batch: Batch, backbone: Backbone, options: ExtractOptions, clock: StageClock | None
) -> Batch:
    """Normalises the views of a batch and turns them into features, on the backbone's device.

    Raises:
        BackboneError: The device has too little memory; the message says what to do.
    """
    if batch.values is None:
        return batch
    with clock.busy(FORWARD) if clock else nullcontext():
        try:
            views = batch.values
            if options.device.type == "cuda":
                views = views.pin_memory()  # so that the copy to the GPU waits for nothing
            on_device = views.to(options.device, non_blocking=True)
            images = normalise(on_device, backbone.preprocessing, options.precision)
            return replace(batch, values=backbone.encode(images).float())
        except torch.OutOfMemoryError:
            raise BackboneError(
                f"{options.device} has too little memory for {len(batch.values)} images at once; "
                f"use --batch-size {max(1, len(batch.values) // 2)}"
            ) from None


def fetch_batch(batch: Batch, clock: StageClock | None) -> Batch:
    """The batch with its features on the CPU, once they are computed."""
    if batch.values is None:
        return batch
    with clock.busy(FORWARD) if clock else nullcontext():
        return replace(batch, values=batch.values.cpu())
