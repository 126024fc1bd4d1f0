"""What every engine offers, and the one that runs shards one after another in this process."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Protocol

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.backbones.frozen_network import runtime_of
from difficulty_service.extraction.batches import APPEND
from difficulty_service.extraction.extracted_shard import ExtractedShard
from difficulty_service.extraction.shard_writer import ShardWriter
from difficulty_service.extraction.shards import BatchCallback, extract_shards
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask


@dataclass(frozen=True)
class LocalEngine:
    """Extracts shards in this process; see `Engine`."""

    clock: StageClock | None = None

    def run_shards(
        self,
        task: ExtractionTask,
        backbone: Backbone,
        shards: Sequence[int],
        writer: ShardWriter,
        on_batch: BatchCallback,
    ) -> str | None:
        """Writes each shard while the next is extracted; at most one waits to be written.

        Where an error or a key press ends it, the finished batches of the last shard are kept.
        """

        def write(shard: int, extracted: ExtractedShard) -> None:
            with self.clock.busy(APPEND) if self.clock else nullcontext():
                writer.write(shard, extracted)

        extracted_shards = extract_shards(
            task, backbone, shards, on_batch, writer.write_unfinished, self.clock
        )
        # Closed before the writer, so that an error or a key press ends the decoders at once.
        with ThreadPoolExecutor(1, thread_name_prefix="writer") as pool, closing(extracted_shards):
            pending: Future[None] | None = None
            for shard, extracted in extracted_shards:
                if pending is not None:
                    pending.result()
                pending = pool.submit(write, shard, extracted)
            if pending is not None:
                pending.result()
        return runtime_of(backbone)


class Engine(Protocol):
    """Runs the shards of a dataset, in this process or elsewhere."""

    def run_shards(
        self,
        task: ExtractionTask,
        backbone: Backbone,
        shards: Sequence[int],
        writer: ShardWriter,
        on_batch: BatchCallback,
    ) -> str | None:
        """Extracts shards and writes each as soon as it is complete.

        Args:
            writer: Writes the features; only this process calls it.
            on_batch: Called with the number of images done since the last call and the number of
                bad ones among them; both may be negative after work was lost. Whatever it raises
                ends the run.

        Returns:
            The library that ran the backbone; None where that was PyTorch, or nothing was to do.

        Raises:
            DifficultyError: As for `extract_shards`; shards that were complete are written.
            OSError: A shard cannot be written.
        """
