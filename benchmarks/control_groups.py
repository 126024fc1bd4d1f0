"""Control groups of version 1 for commands that a benchmark runs; only root may make them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def control_group(controller: str, settings: Mapping[str, int]) -> Iterator[Path | None]:
    """The folder of a new group; None where that cannot be had.

    Args:
        controller: What it limits, such as `memory`.
        settings: Numbers by the names of files in the folder, in the order in which they are set.
    """
    group = GROUPS / controller / "difficulty-benchmark"
    try:
        group.mkdir(exist_ok=True)
        for name, value in settings.items():
            (group / name).write_text(str(value))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def within(group: Path) -> tuple[str, ...]:
    """Words before a command that run it in a group."""
    return ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
