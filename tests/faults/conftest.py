"""Resources that can be made to fail: a database that restarts, a disk that fills up."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TINY_DISK_BYTES = 128 << 20
DISK_BYTES = 3 << 30  # a job of the campaign leaves 18 MB


Restart = Callable[[], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Folder of a small file system in memory; a plain folder where mounting is forbidden."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, DISK_BYTES):
        yield folder


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Folder of a file system that a test can fill at once."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    with mounted(folder, TINY_DISK_BYTES) as is_mounted:
        if not is_mounted:
            pytest.skip("mounting a file system is forbidden here")
        yield folder


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[bool]:
    """Mounts a file system in memory of `size` bytes; False where that is forbidden."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:  # noqa: S603
        yield False
        return
    try:
        yield True
    finally:
        # Killed processes may take a moment to release it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, disk: Path) -> Iterator[tuple[str, Restart | None]]:
    """URL of an SQLite database on that disk, or of a PostgreSQL server and its restart."""
    if request.param == "sqlite":
        yield f"sqlite:///{disk / 'difficulty.sqlite'}", None
        return
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: no initdb and pg_ctl")
    # The socket's path must be short, and its owner able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="difficulty-pg-"))
    account = other_account()
    if "user" in account:
        os.chown(folder, account["user"], account["group"])
    data = folder / "data"

    def call(program: str, *arguments: object) -> None:
        subprocess.run(  # noqa: S603 - our own arguments
            [binaries / program, "-D", data, *map(str, arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            **account,
        )

    options = f"-k {folder} -c listen_addresses='' -c max_connections=200 -c fsync=off"
    start = ("-l", folder / "log", "-o", options, "-w")
    call("initdb", "-U", "difficulty", "-A", "trust", "-E", "UTF8", "-N")
    call("pg_ctl", *start, "start")
    try:
        yield (
            f"postgresql+psycopg://difficulty@/postgres?host={folder}",
            lambda: call("pg_ctl", *start, "-m", "immediate", "restart"),
        )
    finally:
        call("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def find_binaries() -> Path | None:
    """The folder of PostgreSQL's programs."""
    found = [Path(path).resolve().parent for path in [shutil.which("pg_ctl")] if path]
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in (*found, *installed) if (each / "initdb").exists()), None)


def other_account() -> dict[str, Any]:
    """Account to start PostgreSQL with: one's own, but not root, which PostgreSQL refuses."""
    if os.getuid() != 0:
        return {}
    for entry in pwd.getpwall():
        if entry.pw_name == "postgres":
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL cannot run as root, and there is no account postgres")
