"""An extraction fits into the memory that control groups allow, or is refused before it begins."""

import platform

import pytest

from difficulty_service.base.errors import DifficultyError
from difficulty_service.extraction import memory
from difficulty_service.extraction.memory import (
    bytes_ahead,
    freed_memory_keeper,
    own_bytes,
    require_memory,
    suitable_workers,
)

MB = 1 << 20


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 64), (64 << 30, 64), (1024 * MB, 3), (700 * MB, 1), (MB, 1)]
)
def test_threads_are_as_many_as_have_memory(
    limit: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "num_workers", lambda: 64)
    monkeypatch.setattr(memory, "memory_limit", lambda: limit)

    assert suitable_workers() == expected


@pytest.mark.parametrize(("limit", "expected"), [(None, 256), (64 << 30, 256), (1024 * MB, 64)])
def test_files_read_ahead_take_a_share_of_the_memory(
    limit: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: limit)

    assert bytes_ahead() == expected * MB


def test_too_little_memory_is_refused_in_one_sentence() -> None:
    with pytest.raises(DifficultyError, match=r"at least 760 MB .* limited to 600 MB; raise"):
        require_memory(600 * MB)


@pytest.mark.parametrize("limit", [None, 760 * MB, 1024 * MB])
def test_enough_memory_is_not_refused(limit: int | None) -> None:
    require_memory(limit)


def heap_with_holes() -> list[bytearray]:
    """Leaves 96 MB of freed blocks in the heap, between others that are still needed."""
    blocks = [bytearray(b"x") * (48 << 10) for _ in range(4096)]
    return blocks[::2]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can give memory back")
@pytest.mark.parametrize(("times", "at_least", "at_most"), [(0.1, 64 * MB, None), (10.0, None, MB)])
def test_freed_memory_is_given_back_where_a_run_comes_near_the_limit(
    times: float, at_least: int | None, at_most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: int(own_bytes() * times))
    keep_low = freed_memory_keeper()
    needed = heap_with_holes()
    before = own_bytes()

    keep_low()

    given_back = before - own_bytes()
    assert (at_least or given_back) <= given_back <= (at_most or given_back)
    assert len(needed) == 2048


def test_without_a_limit_memory_is_not_even_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: None)
    monkeypatch.setattr(memory, "own_bytes", lambda: pytest.fail("measured"))

    freed_memory_keeper()()
