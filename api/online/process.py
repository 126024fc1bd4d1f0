"""The networks that encode single images, in a process of their own.

Beside the web server they would compete with it for Python's interpreter lock, which cost a fifth
of the rate; and an image that brings down a decoder brings down that process, not the service.
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
from api.logs import set_up_logs
from api.online.encoder import Networks
from api.parent_process import call_after_parent
from api.settings import Settings
from difficulty_service.backbones.backbone import choose_device
from difficulty_service.process_setup import keep_freed_memory

Encoded = NDArray[np.float32] | str
"""Features of one image, of shape (dim,), or why it cannot be read."""


class ImageEncoder:
    """What lives in the other process.

    Args:
        settings: Device and limits of the networks.
    """

    def __init__(self, settings: Settings) -> None:
        self._networks = Networks(choose_device(settings.device), settings.max_pixels)

    def encode(self, images: Sequence[bytes], description: Mapping[str, Any]) -> list[Encoded]:
        """As `Networks.encode`, of encoded images in memory; arrays, since they are cheap to send.

        Raises:
            Problem: The backbone is not the one that the job used any more.
        """
        openers = [partial(io.BytesIO, image) for image in images]
        found = self._networks.encode(openers, description)
        return [each.numpy() if isinstance(each, Tensor) else each for each in found]


class EncoderManager(BaseManager):
    """Starts the process and speaks to it; a thread there serves each thread that asks here."""


EncoderManager.register("ImageEncoder", ImageEncoder, exposed=("encode",))


@dataclass(frozen=True)
class Running:
    """The process and the encoder in it."""

    manager: EncoderManager
    encoder: Any


class ScoringProcess:
    """Encodes images in a process that starts with the first one and again where it has died.

    Args:
        settings: Of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: Running | None = None
        self._lock = threading.Lock()

    def encode(self, images: Sequence[bytes], description: Mapping[str, Any]) -> list[Encoded]:
        """Features of some images as a job made its own.

        Args:
            images: Encoded, as files hold them.
            description: Of the job's features.

        Raises:
            Problem: The backbone is not the one that the job used any more, or the process died.
        """
        running = self._started()
        try:
            encoded: list[Encoded] = running.encoder.encode(list(images), dict(description))
        except (EOFError, OSError) as error:
            structlog.get_logger().error("scoring-process-died", exc_info=error)
            self._end(running)
            raise Problem(
                503,
                "unavailable",
                "the process that runs the networks ended while it worked on the images",
                "send the request again; an image that ends it each time should be left out",
                headers={"Retry-After": "1"},
            ) from None
        return encoded

    def close(self) -> None:
        """Ends the process."""
        if self._running is not None:
            self._end(self._running)

    def _started(self) -> Running:
        with self._lock:
            if self._running is None:
                # Never forked: threads of this process may hold locks that the copy would wait for.
                manager = EncoderManager(ctx=multiprocessing.get_context("spawn"))
                manager.start(_begin, (self._settings, torch.get_num_threads()))
                encoder = manager.ImageEncoder(self._settings)  # type: ignore[attr-defined]
                self._running = Running(manager, encoder)
            return self._running

    def _end(self, running: Running) -> None:
        with self._lock:
            # Others may have seen it die as well, and one of them started the next.
            if self._running is running:
                self._running = None
                running.manager.shutdown()


def _begin(settings: Settings, torch_threads: int) -> None:
    # Signals to the whole group or service are for the server, which ends this process last.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    set_up_logs(settings)
    keep_freed_memory()
    torch.set_num_threads(torch_threads)
    # A server that ends in order ends this process first; one that was killed could not.
    call_after_parent(lambda: os._exit(1))
