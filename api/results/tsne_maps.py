"""Makes the t-SNE of a finished job's images, once somebody looks at its map.

The worker does not make it: it would delay the next job by up to a minute for a map that perhaps
nobody looks at. One map is made at a time, in a process of low priority with one thread and a
limit of memory. A file appears beside the scores once it is complete, so whatever ends the process
or the server costs no more than a new beginning at the next visit.
"""

import os
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray
from sqlalchemy import Engine

from api.jobs.files import TSNE_FILE, count_result
from api.jobs.store import Job
from api.results.maps import Maps, SimilarImages
from api.results.score_columns import OpenScores
from api.storage.artifacts import Artifacts
from difficulty_service.base.apart import Child
from difficulty_service.base.tables import write_parquet
from difficulty_service.review.map import tsne_input, within_unit

MAX_MEMORY = 3 << 30
"""Bytes of data; 20,000 points took a sixth of it."""

NICENESS = 10
MAX_WAITING = 16  # maps; the page of another asks again
MAX_FAILURES = 1000  # that are remembered, each with a sentence


@dataclass(frozen=True)
class Progress:
    """How far a map is.

    Attributes:
        share: Between 0 and 1; 0 also while it waits for another.
        failure: Why there will be none; None as long as there may.
    """

    share: float = 0.0
    failure: str | None = None


@dataclass
class TsneMaps:
    """Makes one map at a time and tells how far each of them is."""

    engine: Engine
    artifacts: Artifacts
    maps: Maps
    similar_images: SimilarImages
    open_scores: OpenScores
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: dict[str, Progress] = field(default_factory=dict)
    _failures: dict[str, Progress] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="tsne")
    )
    _child: Child | None = None
    _closed: bool = False

    def request(self, job: Job) -> Progress | None:
        """How far the map of a succeeded job is, which is begun if need be; None if it is there."""
        with self._lock:
            known = self._pending.get(job.id) or self._failures.get(job.id)
            if known is not None:
                return known
        if self.maps.has(job, "tsne"):
            return None
        with self._lock:
            if job.id not in self._pending and len(self._pending) < MAX_WAITING:
                self._pending[job.id] = Progress()
                self._pool.submit(self._make, job)
        return Progress()

    def close(self) -> None:
        """Ends the map that is being made; it is begun again at the next visit."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()
        self._pool.shutdown(cancel_futures=True)

    def _make(self, job: Job) -> None:
        try:
            failure = self._write(job)
        except Exception as error:  # noqa: BLE001 - the page tells it
            structlog.get_logger().error("tsne-failed", job=job.id, exc_info=error)
            failure = f"the server could not make it ({type(error).__name__})"
        with self._lock:
            del self._pending[job.id]
            if failure is not None and not self._closed:
                if len(self._failures) >= MAX_FAILURES:
                    self._failures.pop(next(iter(self._failures)))
                self._failures[job.id] = Progress(failure=failure)

    def _write(self, job: Job) -> str | None:
        """Why there is no map; None once it is stored."""
        assert job.result is not None  # noqa: S101 - because it succeeded
        vectors = self.similar_images.vectors(job)
        labels = self.open_scores.get(job).samples.labels
        given = None if vectors is None else tsne_input(vectors, len(np.unique(labels)))
        if given is None:
            return "there are too few images with features"
        rows, places = given
        plane = self._embed(job, places)
        if isinstance(plane, str):
            structlog.get_logger().error("tsne-failed", job=job.id, reason=plane)
            return plane
        x, y = within_unit(plane).astype(np.float32).T
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "map.parquet"
            write_parquet(path, pa.table({"row": rows, "x": x, "y": y}))
            self.artifacts.put(path, f"{job.result.prefix}/{TSNE_FILE}")
        count_result(self.engine, self.artifacts, job)
        return None

    def _embed(self, job: Job, places: NDArray[np.float32]) -> NDArray[np.float64] | str:
        """The positions, or why there are none."""
        with self._lock:
            if self._closed:
                return "the server stops"
            child = self._child = Child(serve, places, max_memory=MAX_MEMORY)
        (connection,) = child.connections
        try:
            while isinstance(message := connection.recv(), float):
                with self._lock:
                    self._pending[job.id] = Progress(message)
        except (EOFError, OSError):
            child.finish()
            return f"its process was ended {child.ending}"
        else:
            child.close()
            answer: NDArray[np.float64] | str = message
            return answer
        finally:
            with self._lock:
                self._child = None


def serve(connections: Sequence[Connection], places: NDArray[np.float32]) -> None:
    """Sends the share of the steps that are done, then the positions, or why there are none."""
    from threadpoolctl import threadpool_limits

    from difficulty_service.review.tsne import embed

    os.nice(NICENESS)
    (connection,) = connections
    with suppress(OSError), threadpool_limits(1):  # the parent has ended
        try:
            plane = embed(places, connection.send)
        except (ImportError, MemoryError, ValueError) as error:
            connection.send(f"openTSNE failed: {error or type(error).__name__}")
        else:
            connection.send(plane)
