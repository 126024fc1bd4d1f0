"""The backbones that encode single images, in a process of their own.

In the process of the web server they would compete with it for Python's interpreter lock, which
cost a fifth of the rate; and an image that crashes a decoder crashes that process, not the service.
"""

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.managers import BaseManager
from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from torch import Tensor

from api.http.problems import Problem
from api.logs import set_up_logging
from api.online.encoder import BackbonePool
from api.parent_process import call_after_parent
from api.settings import Settings
from difficulty_service.backbones.backbone import choose_device
from difficulty_service.runtime.process_setup import keep_freed_memory

Encoded = NDArray[np.float32] | str
"""Features of one image, of shape (dim,), or the reason why it cannot be read."""


class ImageEncoder:
    """The object in the other process that encodes images.

    Args:
        settings: Settings with device and limits of the backbones.
    """

    def __init__(self, settings: Settings) -> None:
        self._backbones = BackbonePool(choose_device(settings.device), settings.max_pixels)

    def encode(self, images: Sequence[bytes], description: Mapping[str, Any]) -> list[Encoded]:
        """Like `BackbonePool.encode`, for image files in memory; arrays are cheap to send back.

        Raises:
            Problem: The weights of the backbone are not those that the job used.
        """
        openers = [partial(io.BytesIO, image) for image in images]
        encoded = self._backbones.encode(openers, description)
        return [each.numpy() if isinstance(each, Tensor) else each for each in encoded]


class EncoderManager(BaseManager):
    """Starts the process and calls it; each calling thread is served by a thread of its own."""


EncoderManager.register("ImageEncoder", ImageEncoder, exposed=("encode",))


@dataclass(frozen=True)
class Connection:
    """A running process and the proxy of its encoder."""

    manager: EncoderManager
    encoder: Any


class EncoderProcess:
    """Encodes images in a process that starts with the first one, and again if it has died.

    Args:
        settings: Settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def encode(self, images: Sequence[bytes], description: Mapping[str, Any]) -> list[Encoded]:
        """Features of images, computed like those of a job.

        Args:
            images: Contents of image files.
            description: Description of the features of the job.

        Raises:
            Problem: The weights of the backbone are not those that the job used, or the process
                died.
        """
        connection = self._connect()
        try:
            encoded: list[Encoded] = connection.encoder.encode(list(images), dict(description))
        except (EOFError, OSError) as error:
            structlog.get_logger().error("encoder-process-died", exc_info=error)
            self._end(connection)
            raise Problem(
                503,
                "unavailable",
                "the process that runs the backbones ended while it encoded the images",
                "send the request again; leave out an image with which it fails each time",
                headers={"Retry-After": "1"},
            ) from None
        return encoded

    def close(self) -> None:
        """Ends the process."""
        if self._connection is not None:
            self._end(self._connection)

    def _connect(self) -> Connection:
        with self._lock:
            if self._connection is None:
                # Never forked: threads of this process may hold locks, which a fork would wait for.
                manager = EncoderManager(ctx=multiprocessing.get_context("spawn"))
                manager.start(_set_up_process, (self._settings, torch.get_num_threads()))
                encoder = manager.ImageEncoder(self._settings)  # type: ignore[attr-defined]
                self._connection = Connection(manager, encoder)
            return self._connection

    def _end(self, connection: Connection) -> None:
        with self._lock:
            # Another thread may have noticed as well and started the next process already.
            if self._connection is connection:
                self._connection = None
                connection.manager.shutdown()


def _set_up_process(settings: Settings, torch_threads: int) -> None:
    # Signals to the process group go to the server too, which ends this process last.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    set_up_logging(settings)
    keep_freed_memory()
    torch.set_num_threads(torch_threads)
    # A server that ends in order ends this process first; one that was killed could not.
    call_after_parent(lambda: os._exit(1))
