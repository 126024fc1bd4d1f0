"""Images are looked at once for those that cannot be read, by all processes and runs."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from difficulty_service.base import threads
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from trainer.data.unreadable import Failures, find_once

Write = Callable[..., str]
FOUND = {3: "not an image"}


class Finder:
    """Finds the same each time, and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self) -> Failures:
        self.calls += 1
        self.may_go_on.wait(10)
        return dict(FOUND)


@pytest.fixture(autouse=True)
def assets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for what is kept."""
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    return tmp_path / "assets"


@pytest.fixture
def find() -> Finder:
    return Finder()


def find_in(location: str, find: Finder, max_pixels: int = 100) -> Failures:
    return find_once(open_dataset(location, DatasetOptions()), max_pixels, find)


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_what_one_run_has_found_the_next_one_knows(
    kind: str, write_folder: Write, write_table: Write, find: Finder
) -> None:
    location = write_folder() if kind == "folder" else write_table()

    found = [find_in(location, find) for _ in range(3)]

    assert found == [FOUND] * 3
    assert find.calls == 1


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_a_changed_file_is_looked_at_again(
    kind: str, write_folder: Write, write_table: Write, find: Finder
) -> None:
    location = write_folder() if kind == "folder" else write_table()
    find_in(location, find)
    file = next(Path(location).rglob("*.png")) if kind == "folder" else Path(location)
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content)

    find_in(location, find)

    assert find.calls == 2


def test_another_limit_of_pixels_is_another_question(write_folder: Write, find: Finder) -> None:
    location = write_folder()

    find_in(location, find)
    find_in(location, find, max_pixels=99)

    assert find.calls == 2


def test_processes_that_start_together_wait_for_the_first(
    write_folder: Write, find: Finder
) -> None:
    location = write_folder()
    find.may_go_on.clear()
    found: list[Failures] = []
    starts = [
        threading.Thread(target=lambda: found.append(find_in(location, find))) for _ in range(3)
    ]
    for start in starts:
        start.start()
    find.may_go_on.set()
    for start in starts:
        start.join()

    assert found == [FOUND] * 3
    assert find.calls == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"a": "b"}'])
def test_a_damaged_file_is_made_anew(
    content: str, write_folder: Write, find: Finder, assets: Path
) -> None:
    location = write_folder()
    find_in(location, find)
    (kept,) = assets.rglob("*.json")
    kept.write_text(content)

    assert find_in(location, find) == FOUND
    assert find.calls == 2


def test_a_folder_that_cannot_be_written_keeps_nothing(
    write_folder: Write, find: Finder, assets: Path
) -> None:
    assets.write_text("a file")
    location = write_folder()

    assert [find_in(location, find) for _ in range(2)] == [FOUND] * 2
    assert find.calls == 2


@pytest.mark.parametrize(
    ("ranks", "jobs", "expected"), [(None, 1, 12), ("4", 1, 3), (None, 5, 2), ("20", 1, 1)]
)
def test_the_processes_of_a_machine_share_its_cores(
    ranks: str | None, jobs: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "num_workers", lambda: 12)
    monkeypatch.setattr(threads, "_sharing", 1)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if ranks is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)

    threads.share_cores(jobs)

    assert threads.num_workers_here() == expected
