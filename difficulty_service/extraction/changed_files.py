"""Finds parts of a feature store whose files have changed since they were read."""

from collections.abc import Iterable, Iterator

from difficulty_service.datasets.sample import Dataset
from difficulty_service.feature_store.part import read_bad_images
from difficulty_service.feature_store.part_images import read_stamps
from difficulty_service.feature_store.previous import set_aside
from difficulty_service.feature_store.store import FeatureStore
from difficulty_service.files.identity import file_stamp


def set_aside_changed(dataset: Dataset, store: FeatureStore, shards: Iterable[int]) -> None:
    """Sets aside parts that were made of other content than their files have now.

    The fingerprint of a dataset tells the sizes of its files only, because times differ from one
    machine to the next. Looks at the path, size and times of every file and reads none.

    Args:
        dataset: The dataset that the store belongs to.
        store: A store of this dataset, complete or not.
        shards: Shards to look at.

    Raises:
        FeatureStoreError: A part is damaged.
    """
    present = [shard for shard in shards if store.part_file(shard).exists()]
    changed = [shard for shard in present if not _is_current(dataset, store, shard)]
    set_aside(store, [store.part_file(shard) for shard in changed])


def _is_current(dataset: Dataset, store: FeatureStore, shard: int) -> bool:
    known = set(_stamps(store, shard))
    if not known:  # images in tables or archives
        return True
    files = (sample.file for sample in dataset.read_shard(shard) if sample.file)
    return all(stamp is None or stamp in known for stamp in map(file_stamp, files))


def _stamps(store: FeatureStore, shard: int) -> Iterator[int]:
    """Stamps of the files that a part was made of, readable or not."""
    part = store.part_file(shard)
    bad_stamps = (bad.stamp for bad in read_bad_images(part))
    yield from filter(None, [*read_stamps(part).tolist(), *bad_stamps])
