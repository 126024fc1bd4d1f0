"""Child processes notice that their parent has ended."""

import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import multiprocessing, os, pathlib, sys, time

from api.parent_process import call_after_parent


def child(folder):
    def end():
        (folder / "ended").touch()
        os._exit(0)

    call_after_parent(end)
    (folder / "started").touch()
    time.sleep(60)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    context.Process(target=child, args=(pathlib.Path(sys.argv[1]),)).start()
    time.sleep(60)
"""


def test_a_child_is_told_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    parent = subprocess.Popen([sys.executable, program, tmp_path])  # noqa: S603 - our own program
    wait_for(tmp_path / "started")

    parent.kill()
    parent.wait()

    wait_for(tmp_path / "ended")


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} never appeared"
        time.sleep(0.05)
