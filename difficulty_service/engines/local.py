"""Runs shards one after another in this process."""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

from difficulty_service.extraction.batches import APPEND
from difficulty_service.extraction.shards import Extracted
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.feature_store.store import FeatureStore


def write_shards(
    extracted_shards: Generator[tuple[int, Extracted], None, None],
    store: FeatureStore,
    clock: StageClock | None = None,
) -> None:
    """Writes each shard while the next is extracted; no more than one waits for that.

    Args:
        extracted_shards: As `features.extract_shards` gives them; closed at the end.
        store: Where the features go.
        clock: Told how long writing takes, where that is asked for.

    Raises:
        DifficultyError: As extraction raises it; shards before it are written.
        OSError: A shard cannot be written.
    """

    def write(shard: int, extracted: Extracted) -> None:
        if clock is None:
            store.write_part(shard, *extracted)
            return
        with clock.busy(APPEND):
            store.write_part(shard, *extracted)

    # Closed first, so that an error or a key press ends the decoders before anything waits.
    with ThreadPoolExecutor(1, thread_name_prefix="writer") as writer, closing(extracted_shards):
        writing: Future[None] | None = None
        for shard, extracted in extracted_shards:
            if writing is not None:
                writing.result()
            writing = writer.submit(write, shard, extracted)
        if writing is not None:
            writing.result()
