"""Batches the samples of concurrent requests for one backbone.

Requests queue up while the device runs a batch; the next batch takes what is in the queue. So no
request waits for others, and a busy service still runs full batches.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Submission:
    """Prepared samples of one request and the future of their features."""

    samples: Tensor
    features: "Future[Tensor]"


class Batcher:
    """A thread that runs a backbone on batches.

    Args:
        encode: Gives features, of shape (samples, dim), of prepared samples: uint8 views of images,
            of shape (samples, 3, size, size), or texts, of shape (samples, length).
        batch_size: Maximum number of samples in a pass; only a single larger submission exceeds it.
    """

    def __init__(self, encode: Callable[[Tensor], Tensor], batch_size: int) -> None:
        self._encode = encode
        self._batch_size = batch_size
        self._queue: queue.Queue[Submission | None] = queue.Queue()
        self._remainder: Submission | None = None
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, samples: Tensor) -> "Future[Tensor]":
        """Queues samples, which stay together in one pass.

        Args:
            samples: Prepared samples, as `encode` takes them. Shape (samples, ...).

        Returns:
            Future of the features, of shape (samples, dim).
        """
        submission = Submission(samples, Future())
        self._queue.put(submission)
        return submission.features

    def close(self) -> None:
        """Ends the thread after the submissions that are queued already."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            try:
                with torch.inference_mode():
                    rows = self._encode(torch.cat([each.samples for each in batch]))
            except Exception as error:  # noqa: BLE001 - every error goes to the callers
                for each in batch:
                    each.features.set_exception(error)
                continue
            parts = rows.split([len(each.samples) for each in batch])
            for each, part in zip(batch, parts, strict=True):
                each.features.set_result(part)

    def _take(self) -> list[Submission]:
        """Waits for a submission, then takes all that are queued and fit; empty at the end."""
        submission = self._remainder or self._queue.get()
        self._remainder = None
        batch: list[Submission] = []
        room = self._batch_size
        while submission is not None:
            room -= len(submission.samples)
            if batch and room < 0:
                self._remainder = submission
                return batch
            batch.append(submission)
            try:
                submission = self._queue.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            # The end mark came after samples that must still be encoded.
            self._queue.put(None)
        return batch
