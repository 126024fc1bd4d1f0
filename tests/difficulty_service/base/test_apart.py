"""Functions that run in processes of their own."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from difficulty_service.base.apart import Apart, Limits, ProcessEnded, TookTooLong, call_apart
from difficulty_service.base.errors import ConfigError, DifficultyError

pytestmark = pytest.mark.usefixtures("new_interpreters")


class Unportable(Exception):
    """An error that cannot be made again from its message."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def refuse(value: str) -> None:
    raise ConfigError(f"{value!r} is wrong", "use another", parameter="value")


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raise_unportable() -> None:
    raise Unportable("a", "b")


def give_unportable() -> Callable[[], None]:
    return lambda: None


def allocate(size: int) -> int:
    return len(bytearray(size))


def any_function() -> Callable[..., int]:
    def call(function: Callable[..., int], *args: object) -> int:
        return function(*args)

    return call


def hold(size: int) -> int:
    """Keeps memory; gives the id of the process."""
    held.append(b"1" * size)
    return os.getpid()


held: list[bytes] = []


def wait_for_file(path: Path) -> int:
    while not path.exists():
        time.sleep(0.01)
    return os.getpid()


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart[..., int]]:
    with closing(Apart(any_function)) as apart:
        yield apart


def test_a_call_runs_in_another_process_and_gives_its_result() -> None:
    assert call_apart(os.getpid) != os.getpid()
    assert call_apart(divmod, 7, 2) == (3, 1)


def test_an_error_arrives_whole() -> None:
    with pytest.raises(ConfigError, match="'a' is wrong; use another") as caught:
        call_apart(refuse, "a")

    assert caught.value.parameter == "value"


def test_an_error_that_nobody_expects_shows_where_it_was_raised(apart: Apart[..., int]) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        apart.call(divmod, 1, 0)

    assert any("in call" in note for note in caught.value.__notes__)


def test_what_cannot_be_pickled_is_an_error_after_which_the_process_answers(
    apart: Apart[..., int],
) -> None:
    process = apart.call(os.getpid)

    with pytest.raises(RuntimeError, match="Unportable: ab"):
        apart.call(raise_unportable)
    with pytest.raises(Exception, match="give_unportable"):
        apart.call(give_unportable)

    assert apart.call(os.getpid) == process


def test_a_process_that_is_ended_is_an_error() -> None:
    with pytest.raises(DifficultyError, match="the process for end was ended by signal 9"):
        call_apart(end)


def test_a_process_that_ended_is_replaced(apart: Apart[..., int]) -> None:
    process = apart.call(os.getpid)

    with pytest.raises(ProcessEnded, match="by signal 9"):
        apart.call(end)

    assert apart.call(os.getpid) != process


@pytest.mark.parametrize("size", [1, 1 << 24])
def test_a_process_that_hangs_is_killed_in_time_whether_it_reads_the_request_or_not(
    apart: Apart[..., int], size: int
) -> None:
    process = apart.call(os.getpid)
    os.kill(process, signal.SIGSTOP)

    with pytest.raises(TookTooLong, match=r"after 0\.2 s"):
        apart.call_within(0.2, len, b"1" * size)

    assert not Path(f"/proc/{process}").exists()
    assert apart.call_within(60.0, len, b"123") == 3


def test_allocations_beyond_the_limit_fail_and_the_process_continues() -> None:
    with closing(Apart(any_function, limits=Limits(memory=200 << 20))) as apart:
        process = apart.call(os.getpid)

        with pytest.raises(MemoryError):
            apart.call(allocate, 300 << 20)

        assert apart.call(allocate, 10 << 20) == 10 << 20
        assert apart.call(os.getpid) == process


def test_a_process_that_keeps_too_much_memory_is_replaced_after_its_answer() -> None:
    with closing(Apart(any_function, limits=Limits(kept_memory=100 << 20))) as apart:
        first = apart.call(hold, 1)
        assert apart.call(hold, 100 << 20) == first

        assert not Path(f"/proc/{first}").exists()
        assert apart.call(hold, 1) != first


def test_a_call_does_not_wait_for_another_in_the_same_process(tmp_path: Path) -> None:
    with (
        closing(Apart(any_function, threads=2)) as apart,
        ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(apart.call, wait_for_file, tmp_path / "done")
        process = apart.call_within(60.0, os.getpid)
        assert not slow.done()
        (tmp_path / "done").touch()

        assert slow.result() == process


def test_a_process_starts_only_where_the_others_are_busy(tmp_path: Path) -> None:
    with (
        closing(Apart(any_function, processes=2)) as apart,
        ThreadPoolExecutor(1) as pool,
    ):
        first = apart.call(os.getpid)
        assert apart.call(os.getpid) == first
        slow = pool.submit(apart.call, wait_for_file, tmp_path / "done")
        while apart.call(os.getpid) == first:
            time.sleep(0.01)
        (tmp_path / "done").touch()

        assert slow.result() == first


def test_the_death_of_a_process_fails_all_its_calls(tmp_path: Path) -> None:
    with closing(Apart(any_function, threads=3)) as apart, ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(apart.call, wait_for_file, tmp_path / "never") for _ in range(2)]
        os.kill(apart.call(os.getpid), signal.SIGKILL)

        for call in calls:
            with pytest.raises(ProcessEnded):
                call.result(60)


def test_closing_waits_for_the_calls(tmp_path: Path) -> None:
    apart = Apart(any_function, processes=2)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(apart.call, wait_for_file, tmp_path / "done")
        closer = threading.Thread(target=apart.close)
        closer.start()
        closer.join(0.3)
        assert closer.is_alive()
        (tmp_path / "done").touch()

        process = slow.result()
        closer.join()

    assert not Path(f"/proc/{process}").exists()


def test_nothing_of_this_loads_a_heavy_package() -> None:
    modules = call_apart(partial(eval, "sorted(__import__('sys').modules)"))

    assert not {"torch", "numpy", "scipy", "PIL"} & set(modules)
