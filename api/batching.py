"""Images of concurrent requests through one network, in as few passes as they need.

While the device works on a batch, requests queue up; the next batch takes what is there. So nobody
waits for company, and a busy service still runs full batches.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Waiting:
    """One image and whoever waits for its features."""

    view: Tensor
    features: "Future[Tensor]"


class Batcher:
    """A thread that owns a network.

    Args:
        encode: From uint8 views of shape (images, 3, size, size) to features (images, dim).
        batch_size: Most images in one pass.
    """

    def __init__(self, encode: Callable[[Tensor], Tensor], batch_size: int) -> None:
        self._encode = encode
        self._batch_size = batch_size
        self._queue: queue.Queue[Waiting | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, views: Sequence[Tensor]) -> "list[Future[Tensor]]":
        """Asks for the features of some images.

        Args:
            views: Uint8, each of shape (3, size, size).

        Returns:
            A future of shape (dim,) for each.
        """
        waiting = [Waiting(view, Future()) for view in views]
        for each in waiting:
            self._queue.put(each)
        return [each.features for each in waiting]

    def close(self) -> None:
        """Ends the thread after what is queued already."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                with torch.inference_mode():
                    rows = self._encode(torch.stack([each.view for each in batch]))
            except Exception as error:  # noqa: BLE001 - every kind belongs to those who wait
                for each in batch:
                    each.features.set_exception(error)
                continue
            for each, row in zip(batch, rows, strict=True):
                each.features.set_result(row)

    def _take(self) -> list[Waiting] | None:
        """Waits for one image, then takes all that are there, up to a batch."""
        first = self._queue.get()
        batch = []
        while first is not None:
            batch.append(first)
            if len(batch) == self._batch_size:
                return batch
            try:
                first = self._queue.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            # The sign to end came behind images that must still be answered.
            self._queue.put(None)
            return batch
        return None
