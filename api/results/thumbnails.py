"""Thumbnails of the images of a job, created once, each in a process that may die of it."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import Engine

from api.bounded_cache import BoundedCache
from api.jobs.dataset import find_dataset, open_job_dataset
from api.jobs.files import thumbnail_folder
from api.jobs.store import Job
from api.settings import Settings
from difficulty_service.base.apart import Apart, Limits, ProcessEnded, TookTooLong
from difficulty_service.base.errors import ImageError
from difficulty_service.base.files import replacing
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.images.crops import Crop, CropOpener, picture_maker
from difficulty_service.images.header import read_encoded
from difficulty_service.images.pixels import Pixels

LONGEST = 20.0  # seconds for one picture
ATTEMPTS = 2  # the process may have been killed before it saw the image
BYTES_PER_PIXEL = 24  # 32-bit values are scaled in double precision
OTHER_BYTES = 512 << 20
KEPT_BYTES = 128 << 20  # memory above which a process is replaced once its picture is made


class PictureProcesses:
    """A few processes, each started with its first picture; each makes one picture at a time."""

    def __init__(self, number: int, max_pixels: int, longest: float = LONGEST) -> None:
        limits = Limits(max_pixels * BYTES_PER_PIXEL + OTHER_BYTES, KEPT_BYTES)
        self._pictures = Apart(partial(picture_maker, max_pixels), processes=number, limits=limits)
        self._longest = longest

    def shrink(
        self, data: bytes, size: int, crop: Crop | None = None, pixels: Pixels | None = None
    ) -> bytes:
        """A small JPEG of an image, or of a crop of it; waits for a process that is idle.

        The longer side gets at most `size` pixels; smaller images keep their size. An `ImageError`
        says that the image cannot be decoded, takes too long, or ends the process.
        """
        for _ in range(ATTEMPTS):
            try:
                return self._pictures.call_within(self._longest, data, size, crop, pixels)
            except TookTooLong:
                raise ImageError(f"takes more than {self._longest:g} s to decode") from None
            except ProcessEnded as error:
                structlog.get_logger().error("picture-process-died", exc_info=error)
        raise ImageError("the process that decodes it ended each time")

    def close(self) -> None:
        """Ends all processes, once their pictures are finished."""
        self._pictures.close()


MAX_DATASETS = 4
MOST_TEXT_BYTES = 20_000  # number of bytes of a text that are shown
AT_ONCE = 2
"""Number of thumbnails made at once; together they hold that many decoded images in memory."""


@dataclass(frozen=True)
class Wanted:
    """A thumbnail that a client asks for."""

    job: Job
    sample_id: str
    size: int  # maximum number of pixels of the longer side; smaller images keep their size
    row: int = 0  # of the sample in the score file, if known, with which it is found at once


class Thumbnails:
    """Creates thumbnails; caches the datasets used last, as listing one may take long.

    Args:
        pixels_of: Function that says what became black and white of the images of a job that have
            more than eight bits a channel.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        pixels_of: Callable[[Job], Pixels | None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._pixels_of = pixels_of
        self._engine = engine
        self._datasets: BoundedCache[str, Dataset] = BoundedCache(MAX_DATASETS)
        self._processes = PictureProcesses(AT_ONCE, settings.max_pixels)

    def stored(self, wanted: Wanted) -> Path | None:
        """The JPEG of a thumbnail that was made before; None if it was not."""
        path = self._path(wanted)
        return path if path.exists() else None

    def make(self, wanted: Wanted) -> Path | None:
        """The JPEG of a thumbnail, made if it was not before; None if there is no such sample.

        Raises an `ImageError`, `DatasetError` or `Problem` where image or dataset cannot be read,
        or the dataset is gone. So does `read_text`.
        """
        path = self._path(wanted)
        if path.exists():
            return path
        if wanted.job.is_text:
            raise ImageError("it is a text, which has no thumbnail")
        opener = self._find(wanted)
        if opener is None:
            return None
        # A crop is made of the whole image, which only those processes decode.
        image, crop = opener, None
        if isinstance(opener, CropOpener):
            image, crop = opener.image, opener.crop
        data = read_encoded(image, self._settings.max_pixels)
        picture = self._processes.shrink(data, wanted.size, crop, self._pixels_of(wanted.job))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(picture)
        return path

    def read_text(self, wanted: Wanted) -> str | None:
        """A sample that is a text, instead of its thumbnail; None if there is no such sample."""
        opener = self._find(wanted)
        if opener is None:
            return None
        with opener() as file:
            return file.read(MOST_TEXT_BYTES).decode(errors="ignore")

    def close(self) -> None:
        """Ends the processes that make them."""
        self._processes.close()

    def _path(self, wanted: Wanted) -> Path:
        name = hashlib.sha256(wanted.sample_id.encode()).hexdigest()[:32]
        return thumbnail_folder(self._settings, wanted.job.id) / f"{name}-{wanted.size}.jpg"

    def _find(self, wanted: Wanted) -> ImageOpener | None:
        """Opener of one image; no other image is read."""
        job, settings = wanted.job, self._settings

        def opened() -> Dataset:
            location = find_dataset(job.wanted.dataset, job.owner, settings, self._engine)
            return open_job_dataset(job.wanted, location, settings)

        dataset = self._datasets.get(job.id, opened)
        ids = dataset.sample_ids
        position = _position(ids, wanted.sample_id, wanted.row)
        if position is None:
            position = _position_of_image(ids, wanted.sample_id)
        if position is None:
            return None
        return next(iter(dataset.open_images(range(position, position + 1))))


def _position(sample_ids: Sequence[str], sample_id: str, row: int) -> int | None:
    """Position of a sample in its dataset, which is a little behind its row in the score file.

    Samples without a score have no row, and the others are in the order of the dataset.
    """
    for start in (min(row, len(sample_ids)), 0):
        try:
            return sample_ids.index(sample_id, start)
        except ValueError:
            continue
    return None


def _position_of_image(sample_ids: Sequence[str], decision: str) -> int | None:
    """Position of the image that a decision about a tag is of; its id is `image#tag`."""
    place = decision.rfind("#")
    while place >= 0:
        position = _position(sample_ids, decision[:place], 0)
        if position is not None:
            return position
        place = decision.rfind("#", 0, place)
    return None
