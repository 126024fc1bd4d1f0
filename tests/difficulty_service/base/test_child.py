"""Child processes end with their parent, and it with all that they have started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from difficulty_service.base.apart import Child

PROGRAM = """
import pathlib, sys, time

from difficulty_service.base.apart import Child


def serve(connections, folder):
    (folder / "started").touch()
    time.sleep(600)


if __name__ == "__main__":
    child = Child(serve, pathlib.Path(sys.argv[1]))
    print(child.pid, flush=True)
    time.sleep(60 if len(sys.argv) < 3 else 0)
"""

THREAD_PROGRAM = PROGRAM.replace(
    "    child = Child(serve, pathlib.Path(sys.argv[1]))",
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(Child, serve, pathlib.Path(sys.argv[1])).result()
""",
)

WATCHED_PROGRAM = """
import multiprocessing, pathlib, signal, sys, time

from difficulty_service.base.apart import signal_after_parent


def serve(folder):
    signal.signal(signal.SIGTERM, lambda *_: (folder / "told").touch())
    signal_after_parent(signal.SIGTERM)
    (folder / "started").touch()
    time.sleep(1)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=serve, args=(pathlib.Path(sys.argv[1]),))
    process.start()
    print(process.pid, flush=True)
    time.sleep(60)
"""


def echo(connections: Sequence[Connection]) -> None:
    """Answers the first message, and whatever follows until an empty one."""
    while data := connections[0].recv_bytes():
        connections[0].send_bytes(data)


def start_another(connections: Sequence[Connection]) -> None:
    """Starts a program and tells its id."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as program:
        connections[0].send(program.pid)


def fail(_connections: Sequence[Connection]) -> None:
    """Ends with an exit code."""
    sys.exit(3)


def test_a_child_that_is_killed_ends_with_what_it_has_started() -> None:
    child = Child(start_another)
    program = child.connections[0].recv()

    assert child.is_usable
    assert child.kill()

    assert not child.is_usable
    assert child.ending == "by signal 9 (perhaps for lack of memory)"
    wait_until_gone(program)


def test_signals_that_a_service_manager_sends_to_all_do_not_end_a_child() -> None:
    child = Child(echo)
    child.connections[0].send_bytes(b"ready")
    child.connections[0].recv_bytes()

    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(child.pid, number)
    child.connections[0].send_bytes(b"still there")

    assert child.connections[0].recv_bytes() == b"still there"
    assert os.getpgid(child.pid) != os.getpgid(0)
    child.close()
    assert child.ending == "with exit code 0"


def test_a_child_that_ends_by_itself_says_how() -> None:
    child = Child(fail)

    with pytest.raises(EOFError):
        child.connections[0].recv_bytes()

    assert child.finish()
    assert child.ending == "with exit code 3"


def test_neither_processes_nor_descriptors_are_left_of_children() -> None:
    Child(echo).close()  # starts the tracker of resources, which stays
    before = open_descriptors()

    pids = []
    for end in (Child.kill, Child.close):
        child = Child(echo, connections=4)
        pids.append(child.pid)
        end(child)
        del child

    assert open_descriptors() == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_child_that_nobody_holds_is_killed() -> None:
    child = Child(echo)
    pid = child.pid

    del child

    wait_until_gone(pid)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_child_ends_when_its_parent_is_killed_also_where_it_hangs(
    tmp_path: Path, *, frozen: bool
) -> None:
    parent, child = start(PROGRAM, tmp_path)

    if frozen:
        os.kill(child, signal.SIGSTOP)
    parent.kill()

    wait_until_gone(child)  # which keeps the other end of what the parent printed to
    parent.communicate()


def test_a_child_that_a_thread_has_started_outlives_the_thread_and_ends_with_its_parent(
    tmp_path: Path,
) -> None:
    parent, child = start(THREAD_PROGRAM, tmp_path)

    os.kill(child, 0)  # it is there
    parent.kill()

    wait_until_gone(child)  # which keeps the other end of what the parent printed to
    parent.communicate()


def test_a_parent_that_ends_need_not_close_its_child(tmp_path: Path) -> None:
    parent, child = start(PROGRAM, tmp_path, "ends")

    _, errors = parent.communicate(timeout=30)

    assert (parent.returncode, errors) == (0, "")
    wait_until_gone(child)


@pytest.mark.slow
def test_a_process_of_another_kind_is_told_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent, child = start(WATCHED_PROGRAM, tmp_path)

    parent.kill()
    parent.communicate()
    wait_until_gone(child)

    assert (tmp_path / "told").exists()


def start(content: str, folder: Path, *words: str) -> tuple["subprocess.Popen[str]", int]:
    """A parent process, and the id of its child."""
    program = folder / "program.py"
    program.write_text(content)
    command = [sys.executable, program, folder, *words]
    parent = subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    while not words and not (folder / "started").exists():
        time.sleep(0.01)
    return parent, child


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def wait_until_gone(process: int) -> None:
    """Waits until a process has ended; where nobody waits for it, it stays as a zombie."""
    end = time.monotonic() + 30
    status = Path(f"/proc/{process}/stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, f"process {process} is still there"
        time.sleep(0.01)
