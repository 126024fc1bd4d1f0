"""An extraction fits into the memory that control groups allow, or is refused before it begins."""

import pytest

from difficulty_service.base.errors import DifficultyError
from difficulty_service.extraction import memory
from difficulty_service.extraction.memory import bytes_ahead, require_memory, suitable_workers

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
    with pytest.raises(DifficultyError, match=r"at least 680 MB .* limited to 600 MB; raise"):
        require_memory(600 * MB)


@pytest.mark.parametrize("limit", [None, 680 * MB, 1024 * MB])
def test_enough_memory_is_not_refused(limit: int | None) -> None:
    require_memory(limit)
