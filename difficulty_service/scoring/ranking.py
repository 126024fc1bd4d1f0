"""Percentiles of scores, for more samples than fit in memory."""

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.tables import to_arrow, to_numpy
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.scores.score_columns import measure_of


class UnrankedScores:
    """Rows of scores that wait on disk until all are known and each can get its percentile.

    The files have no name, so that the system removes them however the process ends.
    """

    def __init__(self, rows: BinaryIO, scores: BinaryIO) -> None:
        """Takes two empty files, which `unranked_scores` opens."""
        self._rows, self._scores = rows, scores
        self._writer: pa.RecordBatchFileWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Adds rows with a column of difficulty; all batches must have the same schema."""
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._rows, batch.schema)
        self._writer.write_batch(batch)
        self._scores.write(to_numpy(difficulty_in(batch).drop_null()).tobytes())

    def ranked(self) -> Iterator[pa.RecordBatch]:
        """The batches again, in their order, each with a column `percentile`."""
        if self._writer is None:
            return
        self._writer.close()
        ordered = np.frombuffer(_mapped(self._scores), np.float64)
        ordered.sort()
        reader = pa.ipc.open_file(pa.py_buffer(_mapped(self._rows)))
        # Read by this thread because the reader is not thread-safe; it only points into the file.
        batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
        yield from with_percentiles(batches, ordered)


@contextmanager
def unranked_scores(folder: Path) -> Iterator[UnrankedScores]:
    """Opens temporary files for scores in a folder, which is created where it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        rows, scores = (stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(2))
        yield UnrankedScores(rows, scores)


def with_percentiles(
    batches: Iterable[pa.RecordBatch], ordered: NDArray[np.float64]
) -> Iterator[pa.RecordBatch]:
    """Rows of scores with a column `percentile` of their difficulty; `ordered` has all, rising."""

    def rank(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = percentiles(to_numpy(difficulty_in(batch)), ordered)
        return batch.append_column("percentile", to_arrow(column))

    return map_in_order(rank, batches, num_workers())


def difficulty_in(batch: pa.RecordBatch) -> pa.Array:
    """The column of rows of scores by which these are ordered; see `measure_of`."""
    return batch[measure_of(batch.schema.names)]


def percentiles(scores: NDArray[np.float64], ordered: NDArray[np.float64]) -> NDArray[np.float32]:
    """Percentiles from 0 for the easiest to 1 for the hardest; ties get their mean.

    NaN where there is no score, or only one in all; `ordered` are all scores, ascending. Shapes
    (samples,) and (scores,).
    """
    if len(ordered) < 2:  # noqa: PLR2004
        return np.full(len(scores), np.nan, np.float32)
    below = np.searchsorted(ordered, scores, side="left")
    not_above = np.searchsorted(ordered, scores, side="right")
    ranks = (below + not_above - 1) / 2 / (len(ordered) - 1)
    return np.where(np.isnan(scores), np.nan, ranks).astype(np.float32)


def _mapped(file: BinaryIO) -> mmap.mmap | bytearray:
    file.flush()
    return mmap.mmap(file.fileno(), 0) if file.tell() else bytearray()
