"""One shard of a dataset through a backbone: images in, one part of a feature store out."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import Dataset, Sample
from difficulty_service.errors import ImageError, Setting
from difficulty_service.extraction.batches import (
    DECODE,
    FORWARD,
    READ,
    Batch,
    Group,
    encode_batch,
    fetch_batch,
    prepare_batch,
)
from difficulty_service.extraction.read_ahead import ReadAhead
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.feature_store.part import BadImage, Part
from difficulty_service.images.preparation import set_up_decoding_thread
from difficulty_service.runtime.parallel import (
    map_in_order,
    map_in_turns,
    num_workers,
    one_ahead,
)

SMALL_SIZE = 64
"""Input size up to which a network on a CPU runs on one core for each batch."""

IMAGES_PER_TURN = 256
"""Images decoded before the network on a CPU takes over."""

BatchCallback = Callable[[int, int], None]
"""Called after each batch with the number of its images and the number of bad ones among them."""


@dataclass(frozen=True)
class ExtractedShard:
    """What a shard becomes.

    Attributes:
        part: Features of the images that could be read.
        bad_images: Images that could not be read.
    """

    part: Part
    bad_images: list[BadImage]


def ignore_batch(_images: int, _bad_images: int) -> None:
    """The callback that does nothing."""


def extract_shard(
    task: ExtractionTask,
    backbone: Backbone,
    shard: int,
    on_batch: BatchCallback = ignore_batch,
) -> ExtractedShard:
    """Features of all readable images of a shard, in order, and the images that are not readable.

    A batch never crosses the border of a shard, so a shard's features do not depend on what was
    extracted before it.

    Raises:
        ImageError: An image is bad and the options say to stop; the message names it.
    """
    ((_, extracted),) = extract_shards(task, backbone, [shard], on_batch)
    return extracted


def extract_shards(
    task: ExtractionTask,
    backbone: Backbone,
    shards: Iterable[int],
    on_batch: BatchCallback = ignore_batch,
    clock: StageClock | None = None,
) -> Generator[tuple[int, ExtractedShard], None, None]:
    """Extracts shards one after another.

    Images are read and decoded ahead of the forward pass, across the borders of shards.

    Args:
        task: The dataset and how to extract its features.
        backbone: The backbone that the task names, loaded.
        shards: Indices of the shards, in the order in which to extract them.
        on_batch: Called after each batch.
        clock: Measures how long each stage is busy; None to measure nothing.

    Yields:
        The index of a shard and what `extract_shard` makes of it.

    Raises:
        ImageError: As for `extract_shard`.
    """
    # Closing ends the worker threads at once, also where an error or a key press ends this.
    with closing(_batches(task, backbone, shards, clock)) as batches:
        for shard, of_shard in groupby(batches, key=lambda batch: batch.shard):
            yield shard, _collect(task, backbone.feature_dim, of_shard, on_batch)


def _collect(
    task: ExtractionTask, feature_dim: int, batches: Iterator[Batch], on_batch: BatchCallback
) -> ExtractedShard:
    kept: list[Sample] = []
    bad: list[BadImage] = []
    features: list[Tensor] = []
    for batch in batches:
        if batch.bad and task.options.stop_on_error:
            raise ImageError(
                f"{batch.bad[0].sample_id} in {task.dataset.location}: {batch.bad[0].reason}",
                Setting("on_error", "skip"),
                " lists such images and continues",
                parameter="on_error",
            )
        kept += batch.kept
        bad += batch.bad
        if batch.values is not None:
            features.append(batch.values)
        on_batch(len(batch.kept) + len(batch.bad), len(batch.bad))
    return ExtractedShard(_part(kept, features, feature_dim, task.options.augment_runs), bad)


def _batches(
    task: ExtractionTask, backbone: Backbone, shards: Iterable[int], clock: StageClock | None
) -> Generator[Batch, None, None]:
    """Encoded batches, in order; `_on_gpu` and its two siblings say which thread does what."""
    options, device = task.options, task.network.device
    batch_size = options.batch_size or suitable_batch_size(device, backbone)
    images_per_batch = max(1, batch_size // max(1, options.augment_runs))
    groups = _grouped(task.dataset, shards, images_per_batch)
    if device.type != "cpu":
        return _on_gpu(task, backbone, groups, clock)
    if backbone.preprocessing.size <= SMALL_SIZE:
        return _on_threads(task, backbone, groups, clock)
    turns = iter(lambda: list(islice(groups, max(1, IMAGES_PER_TURN // batch_size))), [])
    return _in_turns(task, backbone, turns, clock)


def _on_gpu(
    task: ExtractionTask, backbone: Backbone, groups: Iterator[Group], clock: StageClock | None
) -> Generator[Batch, None, None]:
    """A GPU has a queue of its own: one thread fills it while the others read and decode."""
    workers = task.options.workers or num_workers()
    prepare_group = partial(prepare_batch, backbone=backbone, options=task.options, clock=clock)
    if clock:
        clock.declare({READ: workers, DECODE: workers, FORWARD: 1})
    before: Batch | None = None
    with closing(
        map_in_order(prepare_group, groups, workers, initializer=set_up_decoding_thread)
    ) as batches:
        for batch in batches:
            # This only begins the work; the batch before is fetched meanwhile.
            encoded = encode_batch(batch, backbone, task.network, clock)
            if before is not None:
                yield fetch_batch(before, clock)
            before = encoded
    if before is not None:
        yield fetch_batch(before, clock)


def _on_threads(
    task: ExtractionTask, backbone: Backbone, groups: Iterator[Group], clock: StageClock | None
) -> Generator[Batch, None, None]:
    """A small network on a CPU gains nothing from a second core: each thread runs whole batches."""
    workers = task.options.workers or num_workers()
    if clock:
        clock.declare(dict.fromkeys((READ, DECODE, FORWARD), workers))

    def extract_batch(group: Group) -> Batch:
        batch = prepare_batch(group, backbone, task.options, clock)
        return encode_batch(batch, backbone, task.network, clock)

    cores_each = max(1, torch.get_num_threads() // workers)
    initializer = partial(torch.set_num_threads, cores_each)
    return map_in_order(extract_batch, groups, workers, initializer=initializer)


def _in_turns(
    task: ExtractionTask,
    backbone: Backbone,
    turns: Iterable[list[Group]],
    clock: StageClock | None,
) -> Generator[Batch, None, None]:
    """On a CPU a larger network and the decoders take turns at all cores.

    The network's threads wait for each other after every layer, so all of them lose time when
    other work takes one core; two batches at once would evict each other from the cache. Files
    are read meanwhile.
    """
    workers = task.options.workers or num_workers()
    prepare_group = partial(prepare_batch, backbone=backbone, options=task.options, clock=clock)
    if clock:
        clock.declare({READ: workers, DECODE: workers, FORWARD: 1})
    with ReadAhead() as ahead:

        def begin(group: Group) -> Group:
            shard, samples = group
            return shard, [replace(sample, open=ahead.begin(sample.open)) for sample in samples]

        begun = one_ahead([begin(group) for group in turn] for turn in turns)
        one_core = partial(torch.set_num_threads, 1)
        for batch in map_in_turns(prepare_group, begun, workers, initializer=one_core):
            yield encode_batch(batch, backbone, task.network, clock)


def suitable_batch_size(device: torch.device, backbone: Backbone) -> int:
    """Many images on a GPU; on a CPU so few that most activations stay in its cache and heap.

    Activations above 32 MB are allocated anew in every layer.
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
