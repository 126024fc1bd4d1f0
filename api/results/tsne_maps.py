"""Makes the t-SNE of a finished job's images, once somebody looks at its map.

The worker does not make it: it would delay the next job by up to a minute for a map that perhaps
nobody looks at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray
from sqlalchemy import Engine

from api.jobs.files import TSNE_FILE, count_result, job_prefix, scratch
from api.jobs.store import Job, get_job
from api.results.maps import Maps, SimilarImages
from api.results.one_by_one import OneByOne, Refusal, SearchProgress, Work, answer
from api.results.score_columns import OpenScores
from api.settings import Settings
from api.storage.artifacts import Artifacts
from difficulty_service.base.tables import write_parquet
from difficulty_service.reports.map import tsne_input, within_unit

MAX_MEMORY = 3 << 30
"""Bytes of data; 20,000 points took a sixth of it."""

MAX_WAITING = 16  # maps; the page of another asks again


@dataclass
class TsneMaps:
    """Makes one map at a time and tells how far each of them is."""

    engine: Engine
    settings: Settings
    artifacts: Artifacts
    maps: Maps
    similar_images: SimilarImages
    open_scores: OpenScores
    _work: OneByOne = field(default_factory=lambda: OneByOne("tsne", MAX_WAITING))

    def request(self, job: Job) -> SearchProgress | None:
        """How far the map of a succeeded job is, which is begun if need be; None if it is there."""
        known = self._work.known(job.id)
        if known is not None:
            return known
        if self.maps.has(job, "tsne"):
            return None
        self._work.begin(job.id, lambda: self._write(job))
        return SearchProgress()

    def close(self) -> None:
        """Ends the map that is being made; it is begun again at the next visit."""
        self._work.close()

    def _write(self, job: Job) -> str | None:
        """Why there is no map; None once it is stored."""
        vectors = self.similar_images.vectors(job)
        labels = self.open_scores.get(job).samples.labels
        given = None if vectors is None else tsne_input(vectors, len(np.unique(labels)))
        if given is None:
            return "there are too few images with features"
        rows, places = given
        plane = self._work.run(job.id, Work(serve, (places,), MAX_MEMORY))
        if isinstance(plane, Refusal):
            structlog.get_logger().error("tsne-failed", job=job.id, reason=plane.reason)
            return plane.reason
        x, y = within_unit(plane).astype(np.float32).T
        with scratch(self.settings) as folder:
            path = folder / "map.parquet"
            write_parquet(path, pa.table({"row": rows, "x": x, "y": y}))
            self.artifacts.put(path, job.key(TSNE_FILE))
        if get_job(self.engine, None, job.id) is None:
            # Deleted meanwhile: nobody would delete this file any more.
            self.artifacts.delete_prefix(job_prefix(job.id))
            return "the job was deleted"
        count_result(self.engine, self.artifacts, job)
        return None


def serve(connections: Sequence[Connection], places: NDArray[np.float32]) -> None:
    """Sends the share of the steps that are done, then the positions, or why there are none."""

    def find(tell: Callable[[float], None]) -> NDArray[np.float64] | Refusal:
        from difficulty_service.reports.tsne import embed

        try:
            return embed(places, tell)
        except (ImportError, MemoryError, ValueError) as error:
            return Refusal(f"openTSNE failed: {error or type(error).__name__}")

    answer(connections, find)
