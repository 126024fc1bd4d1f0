"""Makes small pictures in processes of their own.

An image may be made to take all memory or to hang its decoder. It then takes those of a process
that is replaced, not those of the web server.
"""

import multiprocessing
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import structlog

from api.results.small_picture import serve_pictures
from difficulty_service.errors import ImageError

LONGEST = 20.0  # seconds for one picture
ATTEMPTS = 2  # the process may have been killed before it saw the image
SECONDS_TO_END = 5.0


@dataclass(frozen=True)
class PictureProcess:
    """A running process and the connection to it."""

    process: BaseProcess
    connection: Connection


class PictureProcesses:
    """A few processes, each started with its first picture; each makes one picture at a time.

    Args:
        number: Number of processes.
        max_pixels: Maximum number of pixels of an image.
        longest: Seconds after which a process that has not finished a picture is killed.
    """

    def __init__(self, number: int, max_pixels: int, longest: float = LONGEST) -> None:
        self._number = number
        self._max_pixels = max_pixels
        self._longest = longest
        # The last one used comes first, so that one process is enough for a request at a time.
        self._idle: queue.LifoQueue[PictureProcess | None] = queue.LifoQueue()
        for _ in range(number):
            self._idle.put(None)

    def shrink(self, data: bytes, size: int) -> bytes:
        """A small JPEG of an image; waits for a process that is idle.

        Args:
            data: The whole encoded image.
            size: Maximum number of pixels of the longer side; smaller images keep their size.

        Raises:
            ImageError: The image cannot be decoded, takes too long, or ends the process.
        """
        for _ in range(ATTEMPTS):
            try:
                answer = self._ask(data, size)
            except (EOFError, OSError) as error:
                structlog.get_logger().error("picture-process-died", exc_info=error)
                continue
            if isinstance(answer, str):
                raise ImageError(answer)
            return answer
        raise ImageError("the process that decodes it ended each time")

    def close(self) -> None:
        """Ends all processes, once their pictures are finished."""
        for _ in range(self._number):
            running = self._idle.get()
            if running is not None:
                _end(running)

    def _ask(self, data: bytes, size: int) -> bytes | str:
        """The picture, or the reason why there is none."""
        running = self._idle.get()
        keep = False
        try:
            running = running or self._start()
            with _killed_after(self._longest, running.process) as killed:
                try:
                    running.connection.send(size)
                    running.connection.send_bytes(data)
                    answer, keep = running.connection.recv()
                except (EOFError, OSError):
                    if killed.is_set():
                        return f"takes more than {self._longest:g} s to decode"
                    raise
        finally:
            if running is not None and not keep:
                _end(running)
            self._idle.put(running if keep else None)
        return answer

    def _start(self) -> PictureProcess:
        # Never forked: threads of this process may hold locks, which a fork would wait for.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve_pictures, args=(theirs, self._max_pixels), name="pictures", daemon=True
        )
        process.start()
        theirs.close()  # otherwise its end would not be noticed here
        return PictureProcess(process, ours)


@contextmanager
def _killed_after(seconds: float, process: BaseProcess) -> Iterator[threading.Event]:
    """Kills a process that is still at work after some time; whether it did."""
    killed = threading.Event()

    def kill() -> None:
        killed.set()
        process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield killed
    finally:
        timer.cancel()


def _end(running: PictureProcess) -> None:
    running.connection.close()  # at which the process ends, unless it hangs
    running.process.join(SECONDS_TO_END)
    running.process.kill()
    running.process.join()
