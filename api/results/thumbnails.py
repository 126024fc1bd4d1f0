"""Thumbnails of the images of a job, created once and stored."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from sqlalchemy import Engine

from api.bounded_cache import BoundedCache
from api.jobs.dataset import find_dataset, open_job_dataset
from api.jobs.files import thumbnail_folder
from api.jobs.rows import Job
from api.settings import Settings
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.files.atomic_file import replacing
from difficulty_service.images.decoding import decode_to_pil
from difficulty_service.images.header import open_header, read_encoded

QUALITY = 85
MAX_DATASETS = 4


class Thumbnails:
    """Creates thumbnails; caches the datasets used last, as listing one may take long.

    Args:
        settings: Settings with the folders of datasets and thumbnails.
        engine: Database with the uploads.
    """

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self._datasets: BoundedCache[str, Dataset] = BoundedCache(MAX_DATASETS)

    def get(self, job: Job, sample_id: str, size: int, row: int = 0) -> Path | None:
        """The JPEG thumbnail of a sample, created if needed; None if there is no such sample.

        Args:
            job: Job whose dataset has the sample.
            sample_id: Id of the sample in the score file.
            size: Maximum number of pixels of the longer side; smaller images keep their size.
            row: Row of the sample in the score file, if known, with which it is found at once.

        Raises:
            ImageError: The image cannot be read.
            Problem: The dataset no longer exists.
            DatasetError: The dataset can no longer be read.
        """
        name = hashlib.sha256(sample_id.encode()).hexdigest()[:32]
        path = thumbnail_folder(self._settings, job.id) / f"{name}-{size}.jpg"
        if path.exists():
            return path
        opener = self._find(job, sample_id, row)
        if opener is None:
            return None
        data = read_encoded(opener, self._settings.max_pixels)
        picture = _small(data, size, self._settings.max_pixels)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            picture.save(temporary, "JPEG", quality=QUALITY)
        return path

    def _find(self, job: Job, sample_id: str, row: int) -> ImageOpener | None:
        """Opener of one image; no other image is read."""
        dataset = self._datasets.get(job.id, lambda: self._open_dataset(job))
        position = _position(dataset.sample_ids, sample_id, row)
        if position is None:
            return None
        return next(iter(dataset.open_images(range(position, position + 1))))

    def _open_dataset(self, job: Job) -> Dataset:
        location = find_dataset(job, self._settings, self._engine)
        return open_job_dataset(job, location, self._settings)


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


def _small(data: bytes, size: int, max_pixels: int) -> Image.Image:
    header = open_header(data, max_pixels)
    header.draft("RGB", (size, size))  # decodes a JPEG at a fraction of its size
    picture = decode_to_pil(header)
    picture.thumbnail((size, size), Image.Resampling.BICUBIC)
    return picture
