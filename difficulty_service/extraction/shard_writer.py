"""Writes what was extracted of a shard, together with the features that are known from before."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from difficulty_service.base.files import file_stamp
from difficulty_service.base.tables import to_arrow
from difficulty_service.datasets.sample import Dataset
from difficulty_service.extraction.extracted_shard import ExtractedShard, shard_table
from difficulty_service.features.previous import PreviousFeatures, set_aside
from difficulty_service.features.shard import ShardTable, join_appearance, read_bad_images
from difficulty_service.features.shard_images import read_stamps
from difficulty_service.features.store import FeatureStore


@dataclass
class ShardWriter:
    """Writes the shards of a store, and counts the images whose features were not known before."""

    store: FeatureStore
    dataset: Dataset
    previous: PreviousFeatures | None = None
    num_new: int = 0

    def write(self, shard: int, extracted: ExtractedShard) -> None:
        """Writes a complete shard."""
        table, bad_images = extracted.table, extracted.bad_images
        if self.previous is not None:
            ranks = self._ranks(shard)
            if extracted.reused:
                table = self._with_reused(extracted, self.previous, ranks)
            bad_images = sorted(bad_images, key=lambda bad: ranks[bad.sample_id])
        self.store.write_shard(shard, table, bad_images)
        self.num_new += len(extracted.table.sample_ids) // self.store.runs

    def write_unfinished(self, shard: int, extracted: ExtractedShard) -> None:
        """Writes the new features of a shard that is not complete, for the next run."""
        if extracted.table.sample_ids:
            self.store.write_unfinished(shard, extracted.table, extracted.bad_images)

    def _ranks(self, shard: int) -> dict[str, int]:
        """Positions of a shard's samples by their ids."""
        positions = self.dataset.shard_positions(shard)
        return {self.dataset.sample_ids[position]: position for position in positions}

    def _with_reused(
        self, extracted: ExtractedShard, previous: PreviousFeatures, ranks: Mapping[str, int]
    ) -> ShardTable:
        """A shard with both its new and its known features, in order."""
        rows = np.array([image.known_row for image in extracted.reused], dtype=np.int64)
        run_numbers = self.store.description.run_numbers
        reused = shard_table(extracted.reused, previous.read_features(rows), run_numbers)
        reused = replace(reused, appearance=previous.read_appearance(rows))
        return _merge(extracted.table, reused, ranks)


def _merge(first: ShardTable, second: ShardTable, ranks: Mapping[str, int]) -> ShardTable:
    """The rows of two shards, in the order of the ranks of their samples."""
    ids = [*first.sample_ids, *second.sample_ids]
    contents = [*(first.contents or []), *(second.contents or [])]
    stamps = [*(first.stamps or []), *(second.stamps or [])]
    order = np.argsort([ranks[sample_id] for sample_id in ids], kind="stable")
    rows = torch.from_numpy(order)
    appearance = join_appearance(
        [first.appearance, second.appearance], [len(first.sample_ids), len(second.sample_ids)]
    )
    return ShardTable(
        sample_ids=[ids[row] for row in order],
        labels=torch.cat([first.labels, second.labels])[rows],
        runs=torch.cat([first.runs, second.runs])[rows],
        features=torch.cat([first.features, second.features])[rows],
        contents=[contents[row] for row in order],
        stamps=[stamps[row] for row in order],
        appearance=None if appearance is None else appearance.take(to_arrow(order)),
    )


def set_aside_changed(dataset: Dataset, store: FeatureStore, shards: Iterable[int]) -> None:
    """Sets aside shards that were made of other content than their files have now.

    The fingerprint of a dataset tells the sizes of its files only, because times differ from one
    machine to the next. Looks at the path, size and times of every file and reads none.
    """
    present = [shard for shard in shards if store.shard_file(shard).exists()]
    changed = [shard for shard in present if not _is_current(dataset, store, shard)]
    set_aside(store, [store.shard_file(shard) for shard in changed])


def _is_current(dataset: Dataset, store: FeatureStore, shard: int) -> bool:
    known = set(_stamps(store, shard))
    if not known:  # images in tables or archives
        return True
    files = (sample.file for sample in dataset.read_shard(shard) if sample.file)
    return all(stamp is None or stamp in known for stamp in map(file_stamp, files))


def _stamps(store: FeatureStore, shard: int) -> Iterator[int]:
    """Stamps of the files that a shard was made of, readable or not."""
    file = store.shard_file(shard)
    bad_stamps = (bad.stamp for bad in read_bad_images(file))
    yield from filter(None, [*read_stamps(file).tolist(), *bad_stamps])
