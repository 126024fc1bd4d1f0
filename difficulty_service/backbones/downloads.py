"""Downloads weights from the hub: one download at a time, within a limit, with its progress.

A file appears in the hub's cache once it is whole; until then it has another name.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from difficulty_service.base.errors import Setting, WeightsTooLarge
from difficulty_service.base.files import NO_LOCKS, file_sha256

LOCK_FILE = "difficulty-download.lock"
LOOK_SECONDS = 0.5
"""Time between two looks at whether another download has ended."""

ABANDONED_SECONDS = 3600.0
"""Age of the last byte from which a part of a file counts as left by a process that was killed: the
hub's client gives each attempt another name, and goes on with none."""

SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class DownloadProgress:
    """Progress of a download.

    Attributes:
        done: Bytes that have arrived.
        total: Bytes of all its files; None while it waits for another download, or where the hub
            does not tell.
    """

    done: int = 0
    total: int | None = None


def ignore(_progress: DownloadProgress | None) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True)
class Downloads:
    """How weights are downloaded.

    Attributes:
        max_bytes: Largest size of the files of one backbone together; None for any.
        report: Called with the progress, about twice a second while the download waits for another
            one, and with None at its end. Whatever it raises ends the download. None for the
            progress bar of huggingface_hub.
    """

    max_bytes: int | None = None
    report: Callable[[DownloadProgress | None], None] | None = None


DEFAULT_DOWNLOADS = Downloads()


@dataclass(frozen=True)
class HubFile:
    """A file of a repository of the hub; its size in bytes is None where the hub does not tell."""

    repository: str
    name: str
    size: int | None


def fetch_files(backbone: str, files: Sequence[HubFile], downloads: Downloads) -> list[Path]:
    """Paths in the hub's cache of the files of a backbone, those that are not there downloaded.

    Raises:
        WeightsTooLarge: They are larger than the limit, as announced or as they arrive.
        OSError, httpx2.HTTPError: The hub does not answer, or not with the whole file.
    """
    sizes = [file.size for file in files if file.size is not None]
    total = sum(sizes) if len(sizes) == len(files) else None
    transfer = Transfer(backbone, downloads, total)
    transfer.require_within_limit(sum(sizes))
    report = downloads.report or ignore
    try:
        with _one_at_a_time(report), _able_to_end(downloads):
            return [_fetch(file, transfer) for file in files]
    finally:
        report(None)


@dataclass
class Transfer:
    """The bytes of the files of a backbone, as they arrive."""

    backbone: str
    downloads: Downloads
    total: int | None
    done: int = field(default=0, init=False)

    def add(self, number: int) -> None:
        """Counts bytes before they are written; negative where the hub begins a file anew."""
        self.done += number
        self.require_within_limit(self.done)
        if self.downloads.report is not None:
            self.downloads.report(DownloadProgress(self.done, self.total))

    def require_within_limit(self, size: int) -> None:
        """Refuses more bytes than the limit."""
        limit = self.downloads.max_bytes
        if limit is not None and size > limit:
            raise WeightsTooLarge(
                f"the weights of {self.backbone} have {size:,} bytes or more, and {limit:,} may be "
                "downloaded",
                "use a smaller backbone, or raise ",
                Setting("max_download_bytes"),
                parameter="backbone",
            )


def _fetch(file: HubFile, transfer: Transfer) -> Path:
    from huggingface_hub import hf_hub_download

    bar = _bar_of(transfer)
    path = Path(hf_hub_download(file.repository, file.name, tqdm_class=bar))
    _require_whole(path)
    return path


def _require_whole(path: Path) -> None:
    """Deletes a file whose content is not that of its name in the cache, the hub's SHA-256.

    The hub's client compares sizes alone, and only where the hub tells them.
    """
    blob = path.resolve()
    if SHA256.fullmatch(blob.name) and file_sha256(blob) != blob.name:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise OSError(f"what arrived as {path.name} is not the file of the hub")


def _bar_of(transfer: Transfer) -> type[Any]:
    """A class of progress bars that counts what arrives, and is invisible where others report."""
    from huggingface_hub.utils.tqdm import tqdm

    class CountingBar(tqdm):  # type: ignore[misc, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as of tqdm
            if transfer.downloads.report is not None:
                kwargs["disable"] = True
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:
            transfer.add(int(n or 0))
            shown: bool | None = super().update(n)
            return shown

        def update_transfer(self, _number: float) -> None:
            """Bytes on the wire, which are others than those of the file where it is packed."""

    return CountingBar


@contextmanager
def _one_at_a_time(report: Callable[[DownloadProgress | None], None]) -> Iterator[None]:
    """Waits until no other process or thread of this machine downloads into the cache.

    Where a file system has no locks, nothing waits: whoever downloads a file twice replaces it by
    the same.
    """
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE)
    while not _is_acquired(lock):
        report(DownloadProgress())
    try:
        _delete_abandoned(Path(constants.HF_HUB_CACHE))
        yield
    finally:
        lock.release()


@contextmanager
def _able_to_end(downloads: Downloads) -> Iterator[None]:
    """Has files come by HTTP where a limit or a report may end the download.

    The client of Xet, which is faster, reports from threads of its own: what is raised there ends
    nothing.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_DISABLE_XET
    constants.HF_HUB_DISABLE_XET = before or downloads != DEFAULT_DOWNLOADS
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = before


def _delete_abandoned(cache: Path) -> None:
    """Deletes parts of files that nobody has written to for long."""
    for part in cache.glob("models--*/blobs/*.incomplete"):
        with suppress(OSError):  # another process has taken or deleted it
            if time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
                part.unlink()


def _is_acquired(lock: FileLock) -> bool:
    """Whether the lock could be had within a short time, or there is none to be had at all."""
    try:
        lock.acquire(timeout=LOOK_SECONDS)
    except Timeout:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
