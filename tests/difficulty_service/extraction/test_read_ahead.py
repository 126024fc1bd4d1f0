"""Reading images in advance, where storage is slow."""

import io
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import BinaryIO

import pytest

from difficulty_service.base.errors import ImageError
from difficulty_service.extraction import memory
from difficulty_service.extraction import schedules as read_ahead
from difficulty_service.extraction.schedules import ReadAhead


def opener_of(data: bytes, seconds: float, threads: list[str]) -> Callable[[], BinaryIO]:
    def open_slowly() -> BinaryIO:
        threads.append(threading.current_thread().name)
        time.sleep(seconds)
        return io.BytesIO(data)

    return open_slowly


def refuse() -> BinaryIO:
    raise ImageError("not there")


def read_all(ahead: ReadAhead, openers: list[Callable[[], BinaryIO]]) -> list[bytes]:
    return [opened().read() for opened in [ahead.begin(opener) for opener in openers]]


@pytest.mark.parametrize(
    ("slow_read", "ahead_of_time"), [(read_ahead.SLOW_READ, True), (60, False)]
)
def test_only_slow_storage_is_read_by_other_threads(
    *, slow_read: float, ahead_of_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "SLOW_READ", slow_read)
    seconds = 0.02
    threads: list[str] = []
    images = [bytes([number]) * 10 for number in range(20)]

    with ReadAhead() as ahead:
        first = read_all(ahead, [opener_of(image, seconds, threads) for image in images])
        threads.clear()
        second = read_all(ahead, [opener_of(image, seconds, threads) for image in images])

    assert first == second == images
    assert len(threads) == len(images), "each is read once"
    assert all(("read-ahead" in name) == ahead_of_time for name in threads)


def test_what_an_opener_raises_comes_when_the_image_is_opened() -> None:
    with ReadAhead() as ahead:
        read_all(ahead, [opener_of(b"slow", 0.1, [])])
        opened = ahead.begin(refuse)

        with pytest.raises(ImageError, match="not there"):
            opened()


@pytest.mark.parametrize(
    ("module", "bound"), [(read_ahead, "MAX_FILE_BYTES"), (memory, "MAX_BYTES_AHEAD")]
)
def test_what_would_take_too_much_memory_is_read_when_it_is_opened(
    module: ModuleType, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, bound, 3)
    images = [bytes([number]) * 10 for number in range(20)]
    threads: list[str] = []

    with ReadAhead() as ahead:
        read_all(ahead, [opener_of(b"slow", 0.1, [])])
        read = read_all(ahead, [opener_of(image, 0.0, threads) for image in images])

    assert read == images
    assert any("read-ahead" not in name for name in threads)


def test_an_image_can_be_opened_again() -> None:
    with ReadAhead() as ahead:
        read_all(ahead, [opener_of(b"slow", 0.1, [])])
        opened = ahead.begin(opener_of(b"image", 0.0, []))

        assert opened().read() == opened().read() == b"image"


def test_leaving_cancels_reads_that_have_not_started() -> None:
    threads: list[str] = []
    with ReadAhead() as ahead:
        read_all(ahead, [opener_of(b"slow", 0.1, [])])
        for _ in range(1000):
            ahead.begin(opener_of(b"image", 0.05, threads))

    assert len(threads) < 1000
