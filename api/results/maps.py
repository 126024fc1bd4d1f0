"""The maps of finished jobs, the images in an area of one, and those that resemble an image."""

import gzip
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import structlog
from numpy.typing import NDArray

from api.bounded_cache import BoundedCache
from api.jobs.files import MAP_FILE, TSNE_FILE, VECTORS_FILE, open_stored_parquet, vectors_file
from api.jobs.store import Job
from api.results.score_columns import OpenScores
from api.results.score_pages import BadQuery
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.base.checksums import DamagedFile
from difficulty_service.reports.map import ImageMap, method_of, placed_map
from difficulty_service.reports.map_points import MapPoints, grid_positions
from difficulty_service.reports.similar import map_vectors, most_similar
from difficulty_service.scores.samples import ScoredSamples

Layout = Literal["plane", "tsne"]
"""How a map is laid out: by two discriminants, or by t-SNE."""

FILES: Mapping[Layout, str] = {"plane": MAP_FILE, "tsne": TSNE_FILE}

LEVEL = 5  # level of compression; a higher one makes less than a hundredth of difference


@dataclass(frozen=True)
class EncodedPoints:
    """The points of a map, encoded once."""

    compressed: bytes  # as `MapPoints.packed_bytes`, compressed by gzip
    etag: str  # which other points do not have

    @classmethod
    def encode(cls, drawn: ImageMap, samples: ScoredSamples, address: str) -> Self:
        """The points of a map; each image has a page below an address, by its row."""
        content = MapPoints.of(drawn, samples, address).packed_bytes()
        digest = hashlib.sha256(content).hexdigest()[:32]
        return cls(gzip.compress(content, LEVEL, mtime=0), f'"{digest}"')


MAX_OPEN = 8
MOST_ENCODED = 4  # maps, each of up to 10 MB


class Maps:
    """Reads the maps of finished jobs and keeps those used last."""

    def __init__(self, artifacts: Artifacts, open_scores: OpenScores) -> None:
        self._artifacts = artifacts
        self._open_scores = open_scores
        self._open: BoundedCache[tuple[str, Layout], ImageMap] = BoundedCache(MAX_OPEN)
        self._points: BoundedCache[tuple[str, Layout], EncodedPoints] = BoundedCache(MOST_ENCODED)

    def has(self, job: Job, layout: Layout) -> bool:
        """Whether there is a map of a succeeded job."""
        return self._artifacts.size(job.key(FILES[layout])) is not None

    def get(self, job: Job, layout: Layout = "plane") -> ImageMap | None:
        """A map of a succeeded job; None where it has none, or none yet."""
        key = (job.id, layout)
        # The one that is missing now may be added later.
        known = self._open.known(key)
        if known is not None or not self.has(job, layout):
            return known
        return self._open.get(key, lambda: self._load(job, layout))

    def points(self, job: Job, layout: Layout, address: str) -> EncodedPoints | None:
        """The points of a map as a page reads them; None where there is no map."""
        drawn = self.get(job, layout)
        if drawn is None:
            return None
        samples = self._open_scores.get(job).samples
        return self._points.get(
            (job.id, layout), lambda: EncodedPoints.encode(drawn, samples, address)
        )

    def _load(self, job: Job, layout: Layout) -> ImageMap:
        with open_stored_parquet(self._artifacts, job, FILES[layout]) as file:
            placed = file.read()
        samples = self._open_scores.get(job).samples
        if layout == "plane":
            return placed_map(placed, samples)
        x, y = (placed[name].to_numpy().astype(np.float64) for name in ("x", "y"))
        return ImageMap(
            placed["row"].to_numpy(),
            np.stack([x, y], 1),
            method_of(samples, tsne=True),
            len(samples),
        )


MOST_POLYGONS = 8
FEWEST_CORNERS, MOST_CORNERS = 3, 64
LONGEST_AREA = 4000  # number of characters
OF_TSNE, REMOVED = "tsne~", "not_"
CORNERS = re.compile(r"-?[0-9]{1,5}(_-?[0-9]{1,5})*")


@dataclass(frozen=True)
class Polygon:
    """Adds the images inside to an area, or removes them from it."""

    corners: NDArray[np.int64]  # in the unit of GRID, also outside of the map. Shape (corners, 2)
    adds: bool

    def contains(self, points: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which points are inside, as an array of shape (points,)."""
        is_near = (points >= self.corners.min(axis=0)) & (points <= self.corners.max(axis=0))
        near = np.flatnonzero(is_near.all(axis=1))
        x, y = points[near].T
        inside = np.zeros(len(near), bool)
        for (x1, y1), (x2, y2) in zip(self.corners, np.roll(self.corners, -1, axis=0), strict=True):
            # A point is inside if a ray from it to the right crosses an odd number of sides.
            crosses = (y1 > y) != (y2 > y)
            side = (x - x1) * (y2 - y1) - (x2 - x1) * (y - y1)
            inside ^= crosses & ((side < 0) == (y2 > y1))
        found = np.zeros(len(points), bool)
        found[near[inside]] = True
        return found


@dataclass(frozen=True)
class Area:
    """Polygons on a map, each of which adds images to those before or removes some."""

    layout: Layout
    polygons: Sequence[Polygon]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The area in an address.

        Polygons have `~` between them, and x and y of each corner in turn with `_` between.
        `not_` begins one that removes images. `tsne~` is before an area of the t-SNE.
        """
        layout = layout_of(text)
        parts = text.removeprefix(OF_TSNE).split("~")
        polygons = [_parse_polygon(part) for part in parts[: MOST_POLYGONS + 1]]
        found = [polygon for polygon in polygons if polygon is not None]
        if not 0 < len(found) == len(parts) <= MOST_POLYGONS:
            raise BadQuery(
                "area", f"{text[:100]!r} is no area of the map; draw it on the page of the map"
            )
        return cls(layout, found)

    def rows(self, drawn: ImageMap) -> NDArray[np.int64]:
        """Rows of the drawn images inside, ascending."""
        points = grid_positions(drawn).astype(np.int64)
        inside = np.zeros(len(points), bool)
        for polygon in self.polygons:
            if polygon.adds:
                inside |= polygon.contains(points)
            else:
                inside &= ~polygon.contains(points)
        return np.sort(drawn.rows[inside])


def layout_of(area: str) -> Layout:
    """The layout that an area in an address is of."""
    return "tsne" if area.startswith(OF_TSNE) else "plane"


def _parse_polygon(text: str) -> Polygon | None:
    numbers = text.removeprefix(REMOVED)
    corners = [int(part) for part in numbers.split("_")] if CORNERS.fullmatch(numbers) else []
    if len(corners) % 2 or not FEWEST_CORNERS <= len(corners) // 2 <= MOST_CORNERS:
        return None
    return Polygon(np.array(corners, np.int64).reshape(-1, 2), not text.startswith(REMOVED))


COUNT = 12
MOST_ALIKE = 200
"""Number of images like one that are listed."""

MAX_ANSWERS = 4096

Vectors = NDArray[np.float16]


class SimilarImages:
    """Searches the memory-mapped vectors of finished jobs; remembers the last answers.

    `is_awaited` says of the id of a job whether its vectors are still being made.
    """

    def __init__(
        self,
        settings: Settings,
        artifacts: Artifacts,
        is_awaited: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._is_awaited = is_awaited
        self._settings = settings
        self._artifacts = artifacts
        self._open: BoundedCache[str, Vectors | None] = BoundedCache(MAX_OPEN)
        self._answers: BoundedCache[tuple[str, int, int], Sequence[int] | None]
        self._answers = BoundedCache(MAX_ANSWERS)

    def get(self, job: Job, row: int, count: int = COUNT) -> Sequence[int] | None:
        """Rows of up to `count` images, the most similar first; None without usable vectors."""

        def search() -> Sequence[int] | None:
            vectors = self.vectors(job)
            return None if vectors is None else most_similar(vectors, row, count)

        if self._is_awaited(job.id):
            return None  # which is not remembered
        return self._answers.get((job.id, row, count), search)

    def vectors(self, job: Job) -> Vectors | None:
        """The vectors of a succeeded job, mapped into memory; None without usable ones."""
        return self._open.get(job.id, lambda: self._load_vectors(job))

    def _load_vectors(self, job: Job) -> Vectors | None:
        copy = vectors_file(self._settings, job)
        try:
            return map_vectors(self._artifacts.local_copy(job.key(VECTORS_FILE), copy))
        except FileNotFoundError:
            return None
        except DamagedFile as error:
            structlog.get_logger().error("vectors-damaged", job=job.id, reason=str(error))
            return None
