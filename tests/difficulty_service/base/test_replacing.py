"""A file that several write at once is always one that some of them has written whole."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from difficulty_service.base.files import filling, remove_leftovers, replacing

WRITERS = 4


def test_threads_that_write_the_same_file_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    path, together = tmp_path / "picture.jpg", Barrier(WRITERS)

    def write(number: int) -> None:
        with replacing(path) as temporary:
            together.wait(30)
            temporary.write_text(str(number) * 1000)
            together.wait(30)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))

    assert len(path.read_text()) == 1000
    assert len(set(path.read_text())) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["picture.jpg"]


def test_what_fails_leaves_the_file_before_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("before")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["scores.csv"]


def test_what_a_killed_run_has_left_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".hidden.part").write_text("of a person")
    with filling(tmp_path / "store") as temporary:
        left = tmp_path / temporary.name.replace("store", "killed")
        left.write_text("half")

    remove_leftovers(tmp_path)

    assert sorted(each.name for each in tmp_path.iterdir()) == [".hidden.part", "store"]
