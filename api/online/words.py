"""How close the images of finished jobs are to words, where what made their features knows words.

Words are encoded by the process that scores samples; this one searches, which needs no torch.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from api.bounded_cache import BoundedCache
from api.jobs.kept_features import knows_words
from api.jobs.store import Job
from api.online.process import ScoringProcess
from api.storage.artifacts import Artifacts
from difficulty_service.reports.similar import cosines_to, map_vectors

MAX_JOBS = 1024  # of which it is remembered whether they know words
MAX_OPEN = 8
MAX_ANSWERS = 16  # each of 4 bytes an image

Closeness = NDArray[np.float32]
"""Cosine of each image of a job to words; NaN without features. Shape (rows,)."""


class WordSearch:
    """Compares words with the images of finished jobs; remembers the last answers.

    `weights` is the file of the CLIP that made the features; None for that of the hub.
    `is_awaited` says of the id of a job whether its features are still being taken in.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        process: ScoringProcess,
        weights: Path | None,
        is_awaited: Callable[[str], bool],
    ) -> None:
        self._is_awaited = is_awaited
        self._artifacts = artifacts
        self._process = process
        self._weights = None if weights is None else str(weights)
        self._offered: BoundedCache[str, bool] = BoundedCache(MAX_JOBS)
        self._open: BoundedCache[Path, NDArray[np.float16]] = BoundedCache(MAX_OPEN)
        self._answers: BoundedCache[tuple[str, str], Closeness] = BoundedCache(MAX_ANSWERS)

    def offers(self, job: Job) -> bool:
        """Whether words have a place among the features of a succeeded job."""
        if self._is_awaited(job.id):
            return False  # which is not remembered
        return self._offered.get(job.id, lambda: knows_words(self._artifacts, job))

    def closeness(self, job: Job, text: str) -> Closeness:
        """How close each image of a job that offers it is to a text.

        Raises:
            BackboneError: The CLIP cannot be loaded or is another one, or the text is too long.
            Problem: The files of the job are gone or damaged, or the process has ended.
        """

        def search() -> Closeness:
            vector, path = self._process.encode_words(job, text, self._weights)
            return cosines_to(self._open.get(path, lambda: map_vectors(path)), vector)

        return self._answers.get((job.id, text), search)
