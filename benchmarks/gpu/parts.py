"""What every part of the measurements gets and gives, and how one is run within its time."""

import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import torch

from difficulty_service.base.errors import MissingPackage

BENCHMARKS = Path(__file__).resolve().parents[1]


class LeftOut(Exception):
    """A part, or a piece of it, cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Row:
    """One number.

    Attributes:
        what: What was measured.
        value: The number; None where it could not be measured, and the note says why.
        unit: Its unit.
        note: What to compare it with, or how it was measured.
    """

    what: str
    value: float | None
    unit: str
    note: str = ""


@dataclass(frozen=True)
class Setting:
    """Where a part runs, and for how long.

    Attributes:
        device: The device that is measured.
        quick: Whether sizes are tiny, to try the parts and not to measure.
        folder: Folder for files that may be deleted afterwards.
        ends: Moment of `time.monotonic` until which the part may begin further measurements.
        limits: What the machine can do, by name, once the part that measures it has run.
    """

    device: torch.device
    quick: bool
    folder: Path
    ends: float
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is an NVIDIA GPU."""
        return self.device.type == "cuda"

    def left(self) -> float:
        """Seconds that are left; none or less where the time is up."""
        return self.ends - time.monotonic()

    def synchronise(self) -> None:
        """Waits until the device has done all that it was given."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def time(self, work: Callable[[], object]) -> float:
        """Seconds of one run, with the device idle before and after."""
        self.synchronise()
        began = time.perf_counter()
        work()
        self.synchronise()
        return time.perf_counter() - began

    def free_memory(self) -> int:
        """Bytes that can still be allocated on the GPU; on a processor plenty for tiny sizes."""
        if not self.on_gpu:
            return 1 << 30
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.device)[0])


Rows = Generator[Row, None, None]
Part = Callable[[Setting], Rows]
"""Yields numbers as they are measured, so that those before an error or the end are kept."""


def imported_later(place: str) -> Part:
    """A part that is imported when it runs, so that a package it lacks leaves out no other part.

    Args:
        place: Its module and function, "package.module:function".
    """
    module, _, name = place.partition(":")

    def run(setting: Setting) -> Rows:
        yield from getattr(import_module(module), name)(setting)

    return run


@dataclass(frozen=True)
class PartResult:
    """What came of a part.

    Attributes:
        name: Name of the part.
        rows: Its numbers, as far as it came.
        seconds: How long it took.
        left_out: Why there are no more numbers; None where all were measured.
        failed: Whether an error is the reason, and not what the machine lacks.
    """

    name: str
    rows: list[Row]
    seconds: float
    left_out: str | None
    failed: bool = False


def run_part(name: str, part: Part, setting: Setting) -> PartResult:
    """Runs a part until it ends, fails, or its time is up; the other parts go on in any case."""
    began = time.monotonic()
    rows: list[Row] = []
    left_out, failed = None, False
    try:
        with closing(part(setting)) as measured:
            for row in measured:
                rows.append(row)
                if setting.left() <= 0:
                    left_out = "its time was up, so numbers may be missing"
                    break
    except (LeftOut, MissingPackage) as reason:
        left_out = str(reason)
    except ImportError as error:
        left_out = f"{error.name} is not installed" if error.name else str(error)
    except torch.OutOfMemoryError:
        left_out = "the device has too little memory"
    except Exception as error:  # noqa: BLE001 - whatever it is, the other parts are worth having
        first_line = str(error).strip().partition("\n")[0]
        frames = traceback.extract_tb(error.__traceback__)
        ours = [each for each in frames if Path(each.filename).is_relative_to(BENCHMARKS.parent)]
        place = f"{Path(ours[-1].filename).relative_to(BENCHMARKS.parent)}:{ours[-1].lineno}"
        left_out = f"it failed at {place}: {type(error).__name__}: {first_line}"
        failed = True
    return PartResult(name, rows, time.monotonic() - began, left_out, failed)
