"""Which thread reads, decodes and encodes the batches, on a GPU and on a CPU."""

import io
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import BinaryIO, Self

import torch

from difficulty_service.backbones.backbone import Backbone, Preprocessing, TextPreprocessing
from difficulty_service.base.device_memory import Room
from difficulty_service.base.threads import map_in_order, map_in_turns, one_ahead
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.extraction.batches import (
    DECODE,
    DECODE_ON_GPU,
    FORWARD,
    READ,
    Batch,
    Group,
    Preparation,
    begin_fetch_batch,
    encode_batch,
    make_group,
    prepare_batch,
)
from difficulty_service.extraction.decoding_processes import (
    KeptProcesses,
    can_be_sent,
    prepared_apart,
    processes_pay,
)
from difficulty_service.extraction.gpu_decoding import GpuDecoding
from difficulty_service.extraction.memory import bytes_ahead, suitable_workers
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.images.nvjpeg import jpeg_decoder
from difficulty_service.images.preparation import set_up_decoding_thread

READERS = 8
"""Number of threads that read; they wait for storage most of the time and need no core."""

SLOW_READ = 2e-3
"""Mean seconds per read above which reading ahead pays; it slows down files that are in memory."""

LATEST_READ_WEIGHT = 0.05
"""Weight of the latest read in that mean."""

MAX_FILE_BYTES = 8 << 20
"""Largest file that is read ahead; others are read when they are opened."""


class ReadAhead:
    """Reads images in advance, on threads of its own; leaving the context ends the threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="read-ahead")
        self._lock = threading.Lock()
        self._most_held = bytes_ahead()
        self._held = 0
        self._mean_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, opener: ImageOpener) -> ImageOpener:
        """Starts to read an image, if the reads before it were slow; an opener of the same."""
        pending: list[Future[bytes | None]] = []
        if self._mean_seconds > SLOW_READ:
            pending.append(self._pool.submit(self._read_and_hold, opener))

        def open_read() -> BinaryIO:
            if not pending:
                data = self._read(opener)
            else:
                data = pending.pop().result()  # popped, so that the bytes are freed after use
                self._add_held(-len(data or b""))
            return opener() if data is None else io.BytesIO(data)

        return open_read

    def begin_group(self, group: Group) -> Group:
        """A group of the same samples, whose reads have begun."""
        samples = [replace(each, open=self.begin(each.open)) for each in group.samples]
        return replace(group, samples=samples)

    def _read_and_hold(self, opener: ImageOpener) -> bytes | None:
        data = self._read(opener) if self._held < self._most_held else None
        self._add_held(len(data or b""))
        return data

    def _read(self, opener: ImageOpener) -> bytes | None:
        """The whole file, or None if it is larger than the limit."""
        began = time.perf_counter()
        with opener() as file:
            data = file.read(MAX_FILE_BYTES + 1)
        seconds = time.perf_counter() - began
        with self._lock:
            self._mean_seconds += LATEST_READ_WEIGHT * (seconds - self._mean_seconds)
        return data if len(data) <= MAX_FILE_BYTES else None

    def _add_held(self, num_bytes: int) -> None:
        with self._lock:
            self._held += num_bytes


SMALL_SIZE = 64
"""Input size up to which any network on a CPU runs on one core for each batch."""

IMAGES_PER_TURN = 256
"""Images decoded before the network on a CPU takes over."""


def encoded_batches(
    task: ExtractionTask,
    backbone: Backbone,
    shards: Iterable[int],
    clock: StageClock | None,
    kept: KeptProcesses | None = None,
) -> Generator[Batch, None, None]:
    """All batches of some shards, encoded, in order; `shards` is read once where there are `kept`.

    `_on_gpu` and its two siblings say which thread or process does what. Closing the generator
    ends them, but processes that were `kept` until then only if it has not come to its end.
    """
    options, device = task.options, task.network.device
    batch_size = options.batch_size or suitable_batch_size(device, backbone)
    images_per_batch = max(1, batch_size // len(options.run_numbers))
    if kept is None:
        shards = [*shards]
        kept = KeptProcesses(sum(len(task.dataset.shard_positions(shard)) for shard in shards))
    groups = _grouped(task, shards, images_per_batch)
    if device.type != "cpu" or options.decodes_on_gpu:  # which says that a CPU cannot
        return _on_gpu(task, backbone, groups, batch_size, clock, kept)
    if backbone.one_core or _is_small(backbone):
        return _on_threads(task, backbone, groups, clock)
    turns = iter(lambda: list(islice(groups, max(1, IMAGES_PER_TURN // batch_size))), [])
    return _in_turns(task, backbone, turns, clock)


def _on_gpu(
    task: ExtractionTask,
    backbone: Backbone,
    groups: Iterator[Group],
    batch_size: int,
    clock: StageClock | None,
    kept: KeptProcesses,
) -> Generator[Batch, None, None]:
    """A GPU has a queue of its own: one thread fills it, others or processes read and decode."""
    options, preprocessing = task.options, backbone.preprocessing
    workers = options.workers or suitable_workers()
    room = Room(task.network.device)
    how = Preparation.of(task, backbone)
    decoding = None
    if options.decodes_on_gpu and isinstance(preprocessing, Preprocessing):
        decoding = GpuDecoding(preprocessing, options, jpeg_decoder(room.device), clock)
    if clock:
        on_gpu = {DECODE_ON_GPU: 1} if decoding else {}
        clock.declare({READ: workers, DECODE: workers, **on_gpu, FORWARD: 1})
    pins = task.network.device.type == "cuda"  # so that copies to the GPU wait for nothing

    def prepare_group(group: Group) -> Batch:
        batch = prepare_batch(group, how, clock)
        return batch.pin_memory() if pins else batch

    first = list(islice(groups, 1))
    groups = chain(first, groups)
    pay = processes_pay(how, kept.num_images, batch_size, workers)
    if pay and all(map(can_be_sent, first)):
        prepared = prepared_apart(groups, how, workers, clock, pins=pins, kept=kept)
    else:
        prepared = map_in_order(prepare_group, groups, workers, initializer=set_up_decoding_thread)
    with closing(prepared) as batches:
        decoded = map(decoding.decode, batches) if decoding else batches
        # This only begins the work of a batch; the one before is fetched meanwhile.
        begun = (
            begin_fetch_batch(encode_batch(batch, backbone, task.network, clock, room), clock)
            for batch in decoded
        )
        for fetch in one_ahead(begun):
            yield fetch()


def _on_threads(
    task: ExtractionTask, backbone: Backbone, groups: Iterator[Group], clock: StageClock | None
) -> Generator[Batch, None, None]:
    """A network on a CPU that gains nothing from a second core: each thread runs whole batches."""
    workers = task.options.workers or suitable_workers()
    room = Room(task.network.device)
    how = Preparation.of(task, backbone)
    if clock:
        clock.declare(dict.fromkeys((READ, DECODE, FORWARD), workers))

    def extract_batch(group: Group) -> Batch:
        batch = prepare_batch(group, how, clock)
        return encode_batch(batch, backbone, task.network, clock, room)

    cores_each = max(1, torch.get_num_threads() // workers)
    initializer = partial(torch.set_num_threads, cores_each)
    with ReadAhead() as ahead:
        begun = one_ahead(ahead.begin_group(group) for group in groups)
        with closing(map_in_order(extract_batch, begun, workers, initializer)) as batches:
            yield from batches


def _in_turns(
    task: ExtractionTask, backbone: Backbone, turns: Iterable[list[Group]], clock: StageClock | None
) -> Generator[Batch, None, None]:
    """On a CPU a larger network and the decoders take turns at all cores.

    The network's threads wait for each other after every layer, so all of them lose time when
    other work takes one core; two batches at once would evict each other from the cache. Files
    are read meanwhile.
    """
    workers = task.options.workers or suitable_workers()
    room = Room(task.network.device)
    prepare_group = partial(prepare_batch, how=Preparation.of(task, backbone), clock=clock)
    if clock:
        clock.declare({READ: workers, DECODE: workers, FORWARD: 1})
    with ReadAhead() as ahead:
        begun = one_ahead([ahead.begin_group(group) for group in turn] for turn in turns)
        one_core = partial(torch.set_num_threads, 1)
        for batch in map_in_turns(prepare_group, begun, workers, initializer=one_core):
            yield encode_batch(batch, backbone, task.network, clock, room)


def suitable_batch_size(device: torch.device, backbone: Backbone) -> int:
    """Many images on a GPU; on a CPU so few that most activations stay in its cache and heap.

    Activations above 32 MB are allocated anew in every layer.
    """
    if device.type != "cpu":
        return 256
    return 64 if _is_small(backbone) else 8


def _is_small(backbone: Backbone) -> bool:
    how = backbone.preprocessing
    return (how.size if isinstance(how, TextPreprocessing) else max(how.shape)) <= SMALL_SIZE


def _grouped(task: ExtractionTask, shards: Iterable[int], images_per_batch: int) -> Iterator[Group]:
    for shard in shards:
        remaining = task.dataset.read_shard(shard)
        while samples := list(islice(remaining, images_per_batch)):
            yield make_group(shard, samples, task.known)
