"""One shard of a dataset through a backbone: images in, one part of a feature store out."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import Dataset, ImageOpener, Sample
from difficulty_service.errors import BackboneError, ImageError
from difficulty_service.feature_part import BadImage, Part
from difficulty_service.images import (
    DEFAULT_MAX_PIXELS,
    Augmentation,
    Mode,
    begin_decoding,
    normalise,
    prepare,
    prepare_runs,
)
from difficulty_service.parallel import map_in_order
from difficulty_service.stage_clock import StageClock

READ, DECODE, FORWARD, APPEND = "read", "decode and resize", "normalise and forward", "append"

Extracted = tuple[Part, list[BadImage]]
"""What a shard becomes: its features, and the images that have none."""

Progress = Callable[[int, int], None]
"""Called with the number of samples done and the number of bad images among them."""


def ignore(_done: int, _bad: int) -> None:
    """The progress that nobody looks at."""


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
        workers: Threads that read and decode, and on a CPU run the network as well.
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


def extract_shard(
    dataset: Dataset,
    shard: int,
    backbone: Backbone,
    options: ExtractOptions,
    progress: Progress = ignore,
) -> Extracted:
    """Features of all readable images of a shard, in order, and the images that are not.

    A batch never crosses the border of a shard, so a shard's features do not depend on what was
    extracted before it.

    Raises:
        ImageError: An image is bad and the options say to stop; the message names it.
    """
    ((_, extracted),) = extract_shards(dataset, [shard], backbone, options, progress)
    return extracted


def extract_shards(
    dataset: Dataset,
    shards: Iterable[int],
    backbone: Backbone,
    options: ExtractOptions,
    progress: Progress = ignore,
    clock: StageClock | None = None,
) -> Generator[tuple[int, Extracted], None, None]:
    """Each shard and what `extract_shard` makes of it.

    Images are read and decoded ahead of the forward pass, across the borders of shards.

    Args:
        dataset: Where the images are.
        shards: Which, in this order.
        backbone: What encodes them.
        options: How.
        progress: Told of every batch.
        clock: Told how long each stage is busy, where that is asked for.

    Raises:
        ImageError: As `extract_shard`.
    """
    # Closing ends the worker threads at once, also where an error or a key press ends this.
    with closing(_batches(dataset, shards, backbone, options, clock)) as batches:
        for shard, of_shard in groupby(batches, key=lambda batch: batch.shard):
            yield shard, _collect(dataset, of_shard, backbone, options, progress)


def _collect(
    dataset: Dataset,
    batches: Iterator[Batch],
    backbone: Backbone,
    options: ExtractOptions,
    progress: Progress,
) -> Extracted:
    kept: list[Sample] = []
    bad: list[BadImage] = []
    features: list[Tensor] = []
    for batch in batches:
        if batch.bad and options.stop_on_error:
            raise ImageError(
                f"{batch.bad[0].sample_id} in {dataset.location}: {batch.bad[0].reason}; "
                "--on-error skip lists such images and goes on"
            )
        kept += batch.kept
        bad += batch.bad
        if batch.values is not None:
            features.append(batch.values)
        progress(len(batch.kept) + len(batch.bad), len(batch.bad))
    return _part(kept, features, backbone.feature_dim, options.augment_runs), bad


def _batches(
    dataset: Dataset,
    shards: Iterable[int],
    backbone: Backbone,
    options: ExtractOptions,
    clock: StageClock | None,
) -> Generator[Batch, None, None]:
    """Encoded batches, in order.

    On a CPU each thread takes its batches through all stages, on its own cores: threads that
    split a batch wait for each other, the more so beside others that decode. A GPU has a queue of
    its own, so one thread keeps it fed and the others read and decode.
    """
    batch_size = options.batch_size or suitable_batch_size(options.device, backbone)
    groups = _grouped(dataset, shards, max(1, batch_size // max(1, options.augment_runs)))
    on_cpu = options.device.type == "cpu"

    def take(group: tuple[int, list[Sample]]) -> Batch:
        batch = _prepare(*group, backbone, options, clock)
        return _encode(batch, backbone, options, clock) if on_cpu else batch

    initializer = begin_decoding
    if on_cpu:
        cores_each = max(1, torch.get_num_threads() // options.workers)
        initializer = partial(torch.set_num_threads, cores_each)
    with closing(map_in_order(take, groups, options.workers, initializer=initializer)) as taken:
        if on_cpu:
            yield from taken
            return
        before: Batch | None = None
        for batch in taken:
            # This only begins the work; the batch before is fetched meanwhile.
            encoded = _encode(batch, backbone, options, clock)
            if before is not None:
                yield _fetched(before, clock)
            before = encoded
        if before is not None:
            yield _fetched(before, clock)


def suitable_batch_size(device: torch.device, backbone: Backbone) -> int:
    """Many images for a GPU; on a CPU as few as keep activations in its cache and heap.

    On two cores MobileNetV2 encodes 126 photographs a second in batches of 4, 106 in batches of 8:
    activations above 32 MB are fresh memory in every layer.
    """
    if device.type != "cpu":
        return 256
    return 32 if backbone.preprocessing.size <= 64 else 4  # noqa: PLR2004


def _grouped(
    dataset: Dataset, shards: Iterable[int], images_per_batch: int
) -> Iterator[tuple[int, list[Sample]]]:
    for shard in shards:
        remaining = dataset.read_shard(shard)
        while group := list(islice(remaining, images_per_batch)):
            yield shard, group


def _prepare(
    shard: int,
    samples: Sequence[Sample],
    backbone: Backbone,
    options: ExtractOptions,
    clock: StageClock | None,
) -> Batch:
    """Reads and decodes the samples of a batch."""
    kept: list[Sample] = []
    bad: list[BadImage] = []
    views: list[Tensor] = []
    began, read_before = time.perf_counter(), clock.seconds_here(READ) if clock else 0.0
    for sample in samples:
        opener = clock.reading(sample.open, READ) if clock else sample.open
        try:
            views.append(_views(sample.sample_id, opener, backbone, options))
            kept.append(sample)
        except ImageError as error:
            bad.append(BadImage(sample.sample_id, str(error)))
    if clock:
        reading = clock.seconds_here(READ) - read_before
        clock.add(DECODE, time.perf_counter() - began - reading)
    return Batch(shard, kept, bad, torch.cat(views) if views else None)


def _views(
    sample_id: str, opener: ImageOpener, backbone: Backbone, options: ExtractOptions
) -> Tensor:
    """Views of one image. Shape (runs, 3, size, size)."""
    if not options.augment_runs:
        return prepare(opener, backbone.preprocessing, options.mode, options.max_pixels)[None]
    return prepare_runs(
        opener,
        backbone.preprocessing,
        sample_id,
        Augmentation(runs=options.augment_runs, seed=options.seed),
        options.mode,
        options.max_pixels,
    )


def _encode(
    batch: Batch, backbone: Backbone, options: ExtractOptions, clock: StageClock | None
) -> Batch:
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


def _fetched(batch: Batch, clock: StageClock | None) -> Batch:
    if batch.values is None:
        return batch
    with clock.busy(FORWARD) if clock else nullcontext():
        return replace(batch, values=batch.values.cpu())


def _part(samples: list[Sample], features: list[Tensor], dim: int, augment_runs: int) -> Part:
    numbers = range(1, augment_runs + 1) if augment_runs else [0]
    labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
    return Part(
        sample_ids=[sample.sample_id for sample in samples for _ in numbers],
        labels=labels.repeat_interleave(len(numbers)),
        runs=torch.tensor(list(numbers), dtype=torch.int64).repeat(len(samples)),
        features=torch.cat(features) if features else torch.empty(0, dim),
    )
