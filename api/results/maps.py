"""The maps of finished jobs, the images in an area of one, and those that resemble an image."""

import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import structlog
from numpy.typing import NDArray

from api.bounded_cache import BoundedCache
from api.http.problems import Problem
from api.jobs.files import MAP_FILE, VECTORS_FILE, open_stored_parquet, vectors_file
from api.jobs.store import Job
from api.results.score_columns import OpenScores
from api.results.score_pages import BadQuery
from api.settings import Settings
from api.storage.artifacts import Artifacts, save
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.review.map import ImageMap, placed_map
from difficulty_service.review.similar import map_vectors, most_similar
from difficulty_service.scores.samples import ScoredSamples

LEVEL = 5  # level of compression; a higher one makes less than a hundredth of difference


@dataclass(frozen=True)
class MapPoints:
    """The points of a map, encoded once."""

    compressed: bytes  # JSON, compressed by gzip
    etag: str  # which other points do not have

    @classmethod
    def encode(cls, drawn: ImageMap, samples: ScoredSamples, address: str) -> Self:
        """The points of a map; each image has a page below an address, by its row."""
        nearest = samples.nearest[drawn.rows]
        classes = np.unique(np.concatenate((samples.labels[drawn.rows], nearest))).tolist()
        data = drawn.data(samples, address) | {
            "nearest": nearest.tolist(),
            "names": {label: samples.name_of(label) for label in classes if label >= 0},
        }
        content = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()[:32]
        return cls(gzip.compress(content, LEVEL, mtime=0), f'"{digest}"')


MAX_OPEN = 8
FEWEST_CORNERS, MOST_CORNERS = 3, 64
GRID = 65535
"""Positions are whole numbers from 0 to this, so that pages find the same images as the service."""

CORNERS = re.compile(r"-?[0-9]{1,5}(_-?[0-9]{1,5})*")


class Maps:
    """Reads the maps of finished jobs and keeps those used last."""

    def __init__(self, artifacts: Artifacts, open_scores: OpenScores) -> None:
        self._artifacts = artifacts
        self._open_scores = open_scores
        self._open: BoundedCache[str, ImageMap | None] = BoundedCache(MAX_OPEN)
        self._points: BoundedCache[str, MapPoints | None] = BoundedCache(MAX_OPEN)

    def get(self, job: Job) -> ImageMap | None:
        """The map of a succeeded job; None where it has none."""
        return self._open.get(job.id, lambda: self._load(job))

    def points(self, job: Job, address: str) -> MapPoints | None:
        """The points of the map as a page reads them; None where there is no map."""
        return self._points.get(job.id, lambda: self._encode(job, address))

    def _encode(self, job: Job, address: str) -> MapPoints | None:
        drawn = self.get(job)
        if drawn is None:
            return None
        return MapPoints.encode(drawn, self._open_scores.get(job).samples, address)

    def _load(self, job: Job) -> ImageMap | None:
        try:
            with open_stored_parquet(self._artifacts, job, MAP_FILE) as file:
                placed = file.read()
        except Problem as problem:
            if problem.type != "gone":
                raise
            return None
        return placed_map(placed, self._open_scores.get(job).samples)


@dataclass(frozen=True)
class Area:
    """A polygon on a map."""

    corners: NDArray[np.int64]  # in the unit of GRID, also outside of the map. Shape (corners, 2)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The area in an address: x and y of each corner in turn, with `_` between."""
        numbers = [int(part) for part in text.split("_")] if CORNERS.fullmatch(text) else []
        if len(numbers) % 2 or not FEWEST_CORNERS <= len(numbers) // 2 <= MOST_CORNERS:
            raise BadQuery(
                "area", f"{text[:100]!r} is no area of the map; draw it on the page of the map"
            )
        return cls(np.array(numbers, np.int64).reshape(-1, 2))

    def rows(self, drawn: ImageMap) -> NDArray[np.int64]:
        """Rows of the drawn images inside, ascending."""
        x, y = (drawn.positions * GRID).round().astype(np.int64).T
        is_inside = np.zeros(len(x), bool)
        for (x1, y1), (x2, y2) in zip(self.corners, np.roll(self.corners, -1, axis=0), strict=True):
            # A point is inside if a ray from it to the right crosses an odd number of sides.
            crosses = (y1 > y) != (y2 > y)
            side = (x - x1) * (y2 - y1) - (x2 - x1) * (y - y1)
            is_inside ^= crosses & ((side < 0) == (y2 > y1))
        return np.sort(drawn.rows[is_inside])


COUNT = 12
MOST_ALIKE = 200
"""Number of images like one that are listed."""

MAX_ANSWERS = 4096

Vectors = NDArray[np.float16]


class SimilarImages:
    """Searches the memory-mapped vectors of finished jobs; remembers the last answers."""

    def __init__(self, settings: Settings, artifacts: Artifacts) -> None:
        self._settings = settings
        self._artifacts = artifacts
        self._open: BoundedCache[str, Vectors | None] = BoundedCache(MAX_OPEN)
        self._answers: BoundedCache[tuple[str, int, int], Sequence[int] | None]
        self._answers = BoundedCache(MAX_ANSWERS)

    def get(self, job: Job, row: int, count: int = COUNT) -> Sequence[int] | None:
        """Rows of up to `count` images, the most similar first; None without usable vectors."""

        def search() -> Sequence[int] | None:
            vectors = self._open.get(job.id, lambda: self._load_vectors(job))
            return None if vectors is None else most_similar(vectors, row, count)

        return self._answers.get((job.id, row, count), search)

    def _load_vectors(self, job: Job) -> Vectors | None:
        assert job.result is not None  # noqa: S101 - because it succeeded
        key = f"{job.result.prefix}/{VECTORS_FILE}"
        path = self._artifacts.local_path(key)
        try:
            if path is None:
                path = vectors_file(self._settings, job)
                if not path.exists():
                    save(self._artifacts.open(key), path)
            return map_vectors(path)
        except FileNotFoundError:
            return None
        except DamagedFile as error:
            structlog.get_logger().error("vectors-damaged", job=job.id, reason=str(error))
            return None
