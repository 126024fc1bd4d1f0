"""One shard of a dataset through a backbone: images in, one part of a feature store out."""

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from itertools import groupby

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.base.errors import ImageError, Setting
from difficulty_service.extraction.batches import Batch
from difficulty_service.extraction.decoding_processes import KeptProcesses
from difficulty_service.extraction.extracted_shard import ExtractedShard, join_batches
from difficulty_service.extraction.memory import freed_memory_keeper
from difficulty_service.extraction.schedules import encoded_batches
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask

UNFINISHED_SECONDS = 10.0
"""Seconds after which the finished batches of a shard are reported, for the case of a crash."""

BatchCallback = Callable[[int, int], None]
"""Called after each batch with the number of its images and the number of bad ones among them."""

ShardCallback = Callable[[int, ExtractedShard], None]
"""Called with the index of a shard and what has been extracted of it."""


def ignore_batch(_images: int, _bad_images: int) -> None:
    """The callback that does nothing."""


def ignore_shard(_shard: int, _extracted: ExtractedShard) -> None:
    """The callback that does nothing."""


def extract_shard(
    task: ExtractionTask,
    backbone: Backbone,
    shard: int,
    on_batch: BatchCallback = ignore_batch,
) -> ExtractedShard:
    """As `extract_shards`, of one shard."""
    ((_, extracted),) = extract_shards(task, backbone, [shard], on_batch)
    return extracted


def extract_shards(  # noqa: PLR0913 - what is extracted, who is told, and what measures it
    task: ExtractionTask,
    backbone: Backbone,
    shards: Iterable[int],
    on_batch: BatchCallback = ignore_batch,
    on_unfinished: ShardCallback = ignore_shard,
    clock: StageClock | None = None,
    *,
    kept: KeptProcesses | None = None,
) -> Generator[tuple[int, ExtractedShard], None, None]:
    """Features of the new images of each shard, in order, and which images are known or bad.

    Images are read and decoded ahead of the forward pass, across the borders of shards. A batch
    never crosses one, so a shard's features do not depend on what was extracted before it.

    Args:
        shards: Each is asked for once the images of those before are being read.
        on_unfinished: Called with the finished batches of a shard, where an error or a key press
            ends the extraction, and every `UNFINISHED_SECONDS` before.
        kept: Holds the processes that decode for a GPU afterwards; None to end them.
    """

    def join(batches: list[Batch]) -> ExtractedShard:
        return join_batches(batches, backbone.feature_dim, task.options.run_numbers)

    keep_freed_memory_low = freed_memory_keeper()
    # Closing ends the worker threads at once, also where an error or a key press ends this.
    with closing(encoded_batches(task, backbone, shards, clock, kept)) as batches:
        for shard, of_shard in groupby(batches, key=lambda batch: batch.shard):
            finished: list[Batch] = []
            reported = time.monotonic()
            try:
                for batch in of_shard:
                    finished.append(batch)
                    _stop_at_bad_image(task, batch)
                    on_batch(batch.num_images, len(batch.bad))
                    keep_freed_memory_low()
                    if time.monotonic() - reported >= UNFINISHED_SECONDS:
                        on_unfinished(shard, join(finished))
                        reported = time.monotonic()
            except BaseException:
                on_unfinished(shard, join(finished))
                raise
            yield shard, join(finished)


def _stop_at_bad_image(task: ExtractionTask, batch: Batch) -> None:
    if batch.bad and task.options.stop_on_error:
        raise ImageError(
            f"{batch.bad[0].sample_id} in {task.dataset.location}: {batch.bad[0].reason}",
            Setting("on_error", "skip"),
            " lists such images and continues",
            parameter="on_error",
        )
