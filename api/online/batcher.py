"""Images of concurrent requests through one network, in as few passes as they need.

While the device works on a batch, requests queue up; the next batch takes what is there. So nobody
waits for company, and a busy service still runs full batches.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Waiting:
    """Some images and whoever waits for their features."""

    views: Tensor
    features: "Future[Tensor]"


class Batcher:
    """A thread that owns a network.

    Args:
        encode: From uint8 views of shape (images, 3, size, size) to features (images, dim).
        batch_size: Most images in one pass, but for a submission that is larger by itself.
    """

    def __init__(self, encode: Callable[[Tensor], Tensor], batch_size: int) -> None:
        self._encode = encode
        self._batch_size = batch_size
        self._queue: queue.Queue[Waiting | None] = queue.Queue()
        self._left_over: Waiting | None = None
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, views: Tensor) -> "Future[Tensor]":
        """Asks for the features of some images, which go through the network together.

        Args:
            views: Uint8. Shape (images, 3, size, size).

        Returns:
            A future of shape (images, dim).
        """
        waiting = Waiting(views, Future())
        self._queue.put(waiting)
        return waiting.features

    def close(self) -> None:
        """Ends the thread after what is queued already."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            try:
                with torch.inference_mode():
                    rows = self._encode(torch.cat([each.views for each in batch]))
            except Exception as error:  # noqa: BLE001 - every kind belongs to those who wait
                for each in batch:
                    each.features.set_exception(error)
                continue
            parts = rows.split([len(each.views) for each in batch])
            for each, part in zip(batch, parts, strict=True):
                each.features.set_result(part)

    def _take(self) -> list[Waiting]:
        """Waits for one submission, then takes all that are there and fit; none at the end."""
        waiting = self._left_over or self._queue.get()
        self._left_over = None
        batch: list[Waiting] = []
        room = self._batch_size
        while waiting is not None:
            room -= len(waiting.views)
            if batch and room < 0:
                self._left_over = waiting
                return batch
            batch.append(waiting)
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            # The sign to end came behind images that must still be answered.
            self._queue.put(None)
        return batch
