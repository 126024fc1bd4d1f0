"""Which images of a finished job resemble an image most."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from api.bounded_cache import BoundedCache
from api.jobs.files import VECTORS_FILE, vectors_file
from api.jobs.store import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts, save
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.review.similar import map_vectors, most_similar

COUNT = 12
MAX_OPEN = 8
MAX_ANSWERS = 4096

Vectors = NDArray[np.float16]


class SimilarImages:
    """Searches the memory-mapped vectors of finished jobs; remembers the last answers."""

    def __init__(self, settings: Settings, artifacts: Artifacts) -> None:
        self._settings = settings
        self._artifacts = artifacts
        self._open: BoundedCache[str, Vectors | None] = BoundedCache(MAX_OPEN)
        self._answers: BoundedCache[tuple[str, int], Sequence[int] | None] = BoundedCache(
            MAX_ANSWERS
        )

    def get(self, job: Job, row: int) -> Sequence[int] | None:
        """Rows of up to COUNT images, the most similar first; None without usable vectors."""
        return self._answers.get((job.id, row), lambda: self._search(job, row))

    def _search(self, job: Job, row: int) -> Sequence[int] | None:
        vectors = self._open.get(job.id, lambda: self._load(job))
        return None if vectors is None else most_similar(vectors, row, COUNT)

    def _load(self, job: Job) -> Vectors | None:
        assert job.result is not None  # noqa: S101 - because it succeeded
        key = f"{job.result.prefix}/{VECTORS_FILE}"
        path = self._artifacts.local_path(key)
        try:
            if path is None:
                path = vectors_file(self._settings, job)
                self._fetch(key, path)
            return map_vectors(path)
        except FileNotFoundError:
            return None
        except DamagedFile as error:
            structlog.get_logger().error("vectors-damaged", job=job.id, reason=str(error))
            return None

    def _fetch(self, key: str, path: Path) -> None:
        if not path.exists():
            save(self._artifacts.open(key), path)
