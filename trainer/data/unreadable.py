"""Which images of a dataset cannot be read, found out once by the processes of a machine.

Finding out decodes every image, which takes as long as an epoch. So the first process does it while
the others of the same machine wait. What it found is kept for later runs and seeds, until a file
changes, or what decodes it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

from difficulty_service.base.files import file_stamp, replacing
from difficulty_service.datasets.sample import Dataset

Failures = dict[int, str]
"""The reason of each image that cannot be read, by its position."""


def find_once(dataset: Dataset, max_pixels: int, find: Callable[[], Failures]) -> Failures:
    """The images that cannot be read, as they were found before where no file has changed.

    Images of which changes cannot be seen, such as those of another machine, are looked at anew.

    Args:
        find: Looks at all images.
    """
    path = _kept_file(dataset, max_pixels)
    if path is None:
        return find()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"))
        lock.acquire()
    except OSError:  # nothing can be kept there
        return find()
    try:
        kept = _read(path)
        if kept is None:
            kept = find()
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(kept))
    finally:
        lock.release()
    return kept


def _read(path: Path) -> Failures | None:
    """What was found before; None where nothing was, or the file is damaged."""
    try:
        kept = json.loads(path.read_text())
        return {int(position): str(reason) for position, reason in kept.items()}
    except (OSError, ValueError, AttributeError):
        return None


def _files(dataset: Dataset) -> Iterator[str | None]:
    """The file of each image; None for one that is elsewhere, such as within a table."""
    for shard in range(dataset.num_shards):
        for sample in dataset.read_shard(shard):
            yield sample.file


def _kept_file(dataset: Dataset, max_pixels: int) -> Path | None:
    """The file for what is found; None where a change of an image would go unnoticed."""
    from huggingface_hub import constants  # reads the environment, which tests may change

    digest = hashlib.sha256()
    versions = [version("difficulty-service"), version("pillow")]
    head = [dataset.location, dataset.fingerprint, dataset.containers, max_pixels, versions]
    digest.update(json.dumps(head).encode())
    if next(_files(dataset)) is None:
        if dataset.containers is None:
            return None
    else:
        for file in _files(dataset):
            if file is None:
                return None
            digest.update((file_stamp(file) or 0).to_bytes(8, "little"))
    folder = Path(constants.HF_ASSETS_CACHE) / "difficulty-service" / "unreadable"
    return folder / f"{digest.hexdigest()}.json"
