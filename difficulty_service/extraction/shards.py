"""One shard of a dataset through a backbone: images in, one part of a feature store out."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby, islice

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import Dataset, Sample
from difficulty_service.errors import ImageError
from difficulty_service.extraction.batches import (
    DECODE,
    FORWARD,
    READ,
    Batch,
    ExtractOptions,
    Group,
    encode_batch,
    fetch_batch,
    prepare_batch,
)
from difficulty_service.extraction.read_ahead import ReadAhead
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.feature_store.part import BadImage, Part
from difficulty_service.images.preparation import set_up_decoding_thread
from difficulty_service.parallel import OneByOne, map_in_order, map_in_turns, one_ahead

SMALL_SIZE = 64
"""Up to this size of its images a network on a CPU runs on one core for each batch."""

SHORT_DECODING = 0.5e-3
"""Seconds an image up to which reading and decoding is mostly Python's own work."""

IMAGES_PER_TURN = 256
"""Images decoded before the network on a CPU takes over."""

Extracted = tuple[Part, list[BadImage]]
"""What a shard becomes: its features, and the images that have none."""

Progress = Callable[[int, int], None]
"""Called with the number of samples done and the number of bad images among them."""


def ignore(_done: int, _bad: int) -> None:
    """The progress that nobody looks at."""


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
    """Encoded batches, in order; see `_on_gpu` and its two siblings for who does what."""
    batch_size = options.batch_size or suitable_batch_size(options.device, backbone)
    groups = _grouped(dataset, shards, max(1, batch_size // max(1, options.augment_runs)))
    if options.device.type != "cpu":
        return _on_gpu(groups, backbone, options, clock)
    if backbone.preprocessing.size <= SMALL_SIZE:
        return _on_threads(groups, backbone, options, clock)
    turns = iter(lambda: list(islice(groups, max(1, IMAGES_PER_TURN // batch_size))), [])
    return _in_turns(turns, backbone, options, clock)


def _on_gpu(
    groups: Iterator[Group], backbone: Backbone, options: ExtractOptions, clock: StageClock | None
) -> Generator[Batch, None, None]:
    """A GPU has a queue of its own: one thread keeps it fed and the others read and decode."""
    prepare_group = partial(prepare_batch, backbone=backbone, options=options, clock=clock)
    if clock:
        clock.declare({READ: options.workers, DECODE: options.workers, FORWARD: 1})
    before: Batch | None = None
    with closing(
        map_in_order(prepare_group, groups, options.workers, initializer=set_up_decoding_thread)
    ) as batches:
        for batch in batches:
            # This only begins the work; the batch before is fetched meanwhile.
            encoded = encode_batch(batch, backbone, options, clock)
            if before is not None:
                yield fetch_batch(before, clock)
            before = encoded
    if before is not None:
        yield fetch_batch(before, clock)


def _on_threads(
    groups: Iterator[Group], backbone: Backbone, options: ExtractOptions, clock: StageClock | None
) -> Generator[Batch, None, None]:
    """On a CPU a small network gains nothing from two cores: each thread takes its own batches."""
    if clock:
        clock.declare(dict.fromkeys((READ, DECODE, FORWARD), options.workers))

    one_by_one = OneByOne()

    def take(group: Group) -> Batch:
        _, samples = group
        with one_by_one.piece(SHORT_DECODING * len(samples)):
            batch = prepare_batch(group, backbone, options, clock)
        return encode_batch(batch, backbone, options, clock)

    cores_each = max(1, torch.get_num_threads() // options.workers)
    initializer = partial(torch.set_num_threads, cores_each)
    return map_in_order(take, groups, options.workers, initializer=initializer)


def _in_turns(
    turns: Iterable[list[Group]],
    backbone: Backbone,
    options: ExtractOptions,
    clock: StageClock | None,
) -> Generator[Batch, None, None]:
    """On a CPU a larger network and the decoders take turns at all cores.

    Its threads wait for each other after every layer, and so for each core that somebody else
    takes from one of them; two batches at once would push each other out of the cache. Files are
    read meanwhile.
    """
    prepare_group = partial(prepare_batch, backbone=backbone, options=options, clock=clock)
    if clock:
        clock.declare({READ: options.workers, DECODE: options.workers, FORWARD: 1})
    with ReadAhead() as ahead:

        def begin(group: Group) -> Group:
            shard, samples = group
            return shard, [replace(sample, open=ahead.begin(sample.open)) for sample in samples]

        begun = one_ahead([begin(group) for group in turn] for turn in turns)
        one_core = partial(torch.set_num_threads, 1)
        for batch in map_in_turns(prepare_group, begun, options.workers, initializer=one_core):
            yield encode_batch(batch, backbone, options, clock)


def suitable_batch_size(device: torch.device, backbone: Backbone) -> int:
    """Many images for a GPU; on a CPU as few as keep most activations in its cache and heap.

    Activations above 32 MB are fresh memory in every layer.
    """
    if device.type != "cpu":
        return 256
    return 64 if backbone.preprocessing.size <= SMALL_SIZE else 8


def _grouped(dataset: Dataset, shards: Iterable[int], images_per_batch: int) -> Iterator[Group]:
    for shard in shards:
        remaining = dataset.read_shard(shard)
        while group := list(islice(remaining, images_per_batch)):
            yield shard, group


def _part(samples: list[Sample], features: list[Tensor], dim: int, augment_runs: int) -> Part:
    numbers = range(1, augment_runs + 1) if augment_runs else [0]
    labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
    return Part(
        sample_ids=[sample.sample_id for sample in samples for _ in numbers],
        labels=labels.repeat_interleave(len(numbers)),
        runs=torch.tensor(list(numbers), dtype=torch.int64).repeat(len(samples)),
        features=torch.cat(features) if features else torch.empty(0, dim),
    )
