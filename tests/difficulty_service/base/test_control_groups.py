"""Cores and memory are counted as the control groups of a process leave them, of both versions."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from difficulty_service.base import threads
from difficulty_service.base.control_groups import cpu_quota, memory_limit
from difficulty_service.base.threads import num_workers

V1_MOUNTS = """
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
"""
V2_MOUNTS = "31 23 0:28 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def write(file: Path, text: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Root folder of a system without control groups, but with a process."""
    write(tmp_path / "proc/self/cgroup", "2:cpu:/")
    write(tmp_path / "proc/self/mountinfo", "22 1 8:1 / / rw,relatime - ext4 /dev/root rw")
    return tmp_path


def version_1(system: Path, group: str, root: str = "/") -> tuple[Path, Path]:
    """Folders of the processors and of the memory of version 1, for a process in a group."""
    write(system / "proc/self/cgroup", f"4:memory:{group}\n2:cpu,cpuacct:{group}\n0::/")
    write(system / "proc/self/mountinfo", V1_MOUNTS.format(root=root))
    return system / "sys/fs/cgroup/cpu,cpuacct", system / "sys/fs/cgroup/memory"


def version_2(system: Path, group: str, root: str = "/") -> Path:
    """Folder of the groups of version 2, for a process in a group."""
    write(system / "proc/self/cgroup", f"0::{group}")
    write(system / "proc/self/mountinfo", V2_MOUNTS.format(root=root))
    return system / "sys/fs/cgroup"


def write_quota(folder: Path, quota: int) -> None:
    write(folder / "cpu.cfs_quota_us", quota)
    write(folder / "cpu.cfs_period_us", 100_000)


def test_a_system_without_control_groups_sets_no_limit(system: Path) -> None:
    assert cpu_quota(system) is None
    assert memory_limit(system) is None
    assert cpu_quota(system / "none") is None


def test_the_quota_of_version_1_is_cores(system: Path) -> None:
    cpu, _ = version_1(system, "/job")
    write_quota(cpu, -1)
    write_quota(cpu / "job", 150_000)

    assert cpu_quota(system) == 1.5


def test_the_quota_of_version_2_is_cores(system: Path) -> None:
    groups = version_2(system, "/user.slice/my job")
    write(groups / "user.slice/my job/cpu.max", "50000 100000")

    assert cpu_quota(system) == 0.5


@pytest.mark.parametrize(("outer", "inner"), [(200_000, 400_000), (400_000, 200_000)])
def test_the_smallest_quota_of_nested_groups_holds(system: Path, outer: int, inner: int) -> None:
    cpu, _ = version_1(system, "/pod/job/own")
    write_quota(cpu / "pod", outer)
    write_quota(cpu / "pod/job", inner)
    write_quota(cpu / "pod/job/own", -1)

    assert cpu_quota(system) == 2

    groups = version_2(system, "/pod/job/own")
    write(groups / "pod/cpu.max", f"{outer} 100000")
    write(groups / "pod/job/cpu.max", f"{inner} 100000")
    write(groups / "pod/job/own/cpu.max", "max 100000")

    assert cpu_quota(system) == 2


def test_no_quota_is_no_limit(system: Path) -> None:
    cpu, _ = version_1(system, "/")
    write_quota(cpu, -1)

    assert cpu_quota(system) is None

    write(version_2(system, "/") / "cpu.max", "max 100000")

    assert cpu_quota(system) is None


@pytest.mark.parametrize(
    ("root", "group"), [("/docker/ab", "/docker/ab/job"), ("/docker/ab", "/job")]
)
def test_a_container_that_sees_its_own_groups_alone_finds_its_limits(
    system: Path, root: str, group: str
) -> None:
    cpu, memory = version_1(system, group, root)
    write_quota(cpu, 100_000)
    write(memory / "memory.limit_in_bytes", 1 << 30)

    assert cpu_quota(system) == 1
    assert memory_limit(system) == 1 << 30

    groups = version_2(system, group, root)
    write(groups / "cpu.max", "300000 100000")
    write(groups / "memory.max", 2 << 30)

    assert cpu_quota(system) == 3
    assert memory_limit(system) == 2 << 30


def test_the_smallest_memory_limit_of_nested_groups_holds(system: Path) -> None:
    _, memory = version_1(system, "/pod/job")
    write(memory / "memory.limit_in_bytes", 9223372036854771712)
    write(memory / "pod/memory.limit_in_bytes", 600 << 20)
    write(memory / "pod/job/memory.limit_in_bytes", 1 << 30)

    assert memory_limit(system) == 600 << 20

    groups = version_2(system, "/pod/job")
    write(groups / "pod/memory.max", 1 << 30)
    write(groups / "pod/memory.high", 700 << 20)
    write(groups / "pod/job/memory.max", "max")

    assert memory_limit(system) == 700 << 20


@pytest.mark.parametrize(
    ("quota", "expected"), [(None, 4), (0.2, 1), (1.0, 1), (1.5, 2), (64.0, 4)]
)
def test_cores_are_those_of_affinity_and_quota(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)

    assert num_workers() == expected


CHILD = """
import os, sys
for folder in sys.argv[1:]:
    open(folder + "/cgroup.procs", "w").write(str(os.getpid()))
import difficulty_service
from difficulty_service.base.control_groups import cpu_quota, memory_limit
from difficulty_service.base.threads import num_workers
import torch
print(cpu_quota(), num_workers(), torch.get_num_threads(), memory_limit())
"""


@pytest.fixture
def groups() -> Iterator[tuple[Path, Path]]:
    """Folders of nested groups of version 1 with half a core and a memory of 1 GB."""
    name = f"difficulty-test-{os.getpid()}"
    made: list[Path] = []
    try:
        for controller, file, value in (
            ("cpu", "cpu.cfs_quota_us", "50000"),
            ("memory", "memory.limit_in_bytes", str(1 << 30)),
        ):
            group = Path("/sys/fs/cgroup", controller, name)
            try:
                group.mkdir()
                made.append(group)
                (group / file).write_text(value)
                (group / "own").mkdir()
                made.append(group / "own")
            except OSError as error:
                pytest.skip(f"no control group of version 1 can be made here: {error}")
        yield made[1], made[3]
    finally:
        for group in reversed(made):
            group.rmdir()


@pytest.mark.slow
def test_a_process_in_a_control_group_has_no_more_threads_than_its_quota(
    groups: tuple[Path, Path],
) -> None:
    variables = {name: value for name, value in os.environ.items() if "_NUM_THREADS" not in name}
    command = [sys.executable, "-c", CHILD, *map(str, groups)]

    output = subprocess.check_output(command, env=variables, text=True)  # noqa: S603

    assert output.split() == ["0.5", "1", "1", str(1 << 30)]
