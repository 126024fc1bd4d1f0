"""Runs shards one after another in this process."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.extraction.batches import APPEND
from difficulty_service.extraction.shards import BatchCallback, ExtractedShard, extract_shards
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.feature_store.store import FeatureStore


@dataclass(frozen=True)
class LocalEngine:
    """Extracts shards in this process; see `Engine`.

    Attributes:
        clock: Measures how long each stage is busy; None to measure nothing.
    """

    clock: StageClock | None = None

    def run_shards(
        self,
        task: ExtractionTask,
        backbone: Backbone,
        shards: Sequence[int],
        store: FeatureStore,
        on_batch: BatchCallback,
    ) -> None:
        """Writes each shard while the next is extracted; at most one waits to be written."""

        def write(shard: int, extracted: ExtractedShard) -> None:
            with self.clock.busy(APPEND) if self.clock else nullcontext():
                store.write_part(shard, extracted.part, extracted.bad_images)

        extracted_shards = extract_shards(task, backbone, shards, on_batch, self.clock)
        # Closed before the writer, so that an error or a key press ends the decoders at once.
        with ThreadPoolExecutor(1, thread_name_prefix="writer") as pool, closing(extracted_shards):
            pending: Future[None] | None = None
            for shard, extracted in extracted_shards:
                if pending is not None:
                    pending.result()
                pending = pool.submit(write, shard, extracted)
            if pending is not None:
                pending.result()
