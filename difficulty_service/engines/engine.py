"""What every engine offers: it extracts shards and writes each to a feature store."""

from collections.abc import Sequence
from typing import Protocol

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.extraction.part_writer import PartWriter
from difficulty_service.extraction.shards import BatchCallback
from difficulty_service.extraction.task import ExtractionTask


class Engine(Protocol):
    """Runs the shards of a dataset, in this process or elsewhere."""

    def run_shards(
        self,
        task: ExtractionTask,
        backbone: Backbone,
        shards: Sequence[int],
        writer: PartWriter,
        on_batch: BatchCallback,
    ) -> None:
        """Extracts shards and writes each as soon as it is complete.

        Args:
            task: The dataset and how to extract its features.
            backbone: The backbone that the task names, loaded in this process.
            shards: Indices of the shards to extract.
            writer: Writes the features; only this process calls it.
            on_batch: Called with the number of images done since the last call and the number of
                bad ones among them; both may be negative after work was lost. Whatever it raises
                ends the run.

        Raises:
            DifficultyError: As for `extract_shards`; shards that were complete are written.
            OSError: A shard cannot be written.
        """
