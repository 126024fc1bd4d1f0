"""Cells of the study: each is computed in a process of its own, once, and kept as JSON."""

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import machine
from difficulty_service.base.files import replacing
from difficulty_service.base.process_setup import give_back_freed_memory

PRELOADED = [
    *("benchmarks.evidence.run", "cleanlab.filter", "cleanlab.rank", "pytorch_ood.detector"),
    *("sklearn.discriminant_analysis", "sklearn.neighbors"),
    *("torch._dynamo", "torch.utils.tensorboard", "tqdm.auto"),
]
"""What cells would otherwise import one by one, each in its own process."""

STATISTIC = "confusions and number of wrong labels by class"
"""What `suspicion` estimates. A cell records it, so that tables can tell numbers of another one."""

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Result:
    """What a cell found.

    Attributes:
        values: JSON values for the page.
        arrays: Arrays for other cells, by name.
    """

    values: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One computation of the study.

    Attributes:
        name: Path of its result below the folder of cells, without a suffix.
        compute: The computation; a process must be able to send it to another.
    """

    name: str
    compute: Callable[[], Result]


def measured(work: Callable[[], Returned]) -> tuple[Returned, dict[str, float | None]]:
    """Runs some work; also its processor seconds and the megabytes that it took at its peak."""
    gc.collect()
    give_back_freed_memory()  # or the work would take some of it for nothing
    before = _forget_peak()
    began = time.process_time()
    returned = work()
    seconds = time.process_time() - began
    megabytes = None if before is None else (_kilobytes("VmHWM") - before) / 1024
    return returned, {"seconds": seconds, "megabytes": megabytes}


def _forget_peak() -> int | None:
    """Resets the peak of this process's memory; its present memory, None where that fails."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _kilobytes("VmRSS")


def _kilobytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def result_file(folder: Path, name: str) -> Path:
    """The file of a cell's result."""
    return folder / "cells" / f"{name}.json"


def read_result(folder: Path, name: str) -> dict[str, Any] | None:
    """The values of a cell; None where it has not run."""
    file = result_file(folder, name)
    return json.loads(file.read_text()) if file.exists() else None


def read_arrays(folder: Path, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a cell that has run."""
    with np.load(result_file(folder, name).with_suffix(".npz")) as arrays:
        return dict(arrays)


def fill(folder: Path, cells: Sequence[Cell], jobs: int) -> list[str]:
    """Computes the cells that have no result yet.

    Args:
        folder: Folder of the study.
        cells: Cells that do not need each other.
        jobs: Number of processes at a time; 0 computes all in this process, for a debugger.

    Returns:
        Names of cells that failed; the error is printed.
    """
    missing = [cell for cell in cells if not result_file(folder, cell.name).exists()]
    failed = []
    began = time.perf_counter()
    outcomes = _compute_apart(folder, missing, jobs) if jobs else _compute_here(folder, missing)
    for done, (name, error) in enumerate(outcomes, start=1):
        left = (time.perf_counter() - began) / done * (len(missing) - done)
        print(f"{done}/{len(missing)} {name}, about {left / 60:.0f} min left", flush=True)
        if error:
            print(f"{name} failed: {error}", flush=True)
            failed.append(name)
    return failed


def _compute_here(folder: Path, cells: Sequence[Cell]) -> Iterator[tuple[str, str]]:
    """Computes cells one after another in this process; names and errors."""
    for cell in cells:
        yield cell.name, _compute(folder, cell)


def _compute_apart(folder: Path, cells: Sequence[Cell], jobs: int) -> Iterator[tuple[str, str]]:
    """Computes cells in processes of their own; names and errors in the order of their end."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread in each process is faster
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ThreadPoolExecutor(jobs) as threads:  # each waits for a process
        futures = {threads.submit(_run_apart, context, folder, cell): cell for cell in cells}
        for future in as_completed(futures):
            yield futures[future].name, future.result()


def _run_apart(context: ForkServerContext, folder: Path, cell: Cell) -> str:
    """Computes a cell in a process of its own; the error, if there is one."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(folder, cell, sender))
    process.start()
    sender.close()
    try:
        error: str = receiver.recv()
    except EOFError:
        process.join()
        error = f"its process ended with exit code {process.exitcode}"
    process.join()
    return error


def _run(folder: Path, cell: Cell, sender: Connection) -> None:
    sender.send(_compute(folder, cell))


def _compute(folder: Path, cell: Cell) -> str:
    """Computes a cell and writes its result; the error, if there is one."""
    began = time.process_time()
    try:
        result = cell.compute()
    except Exception as error:  # noqa: BLE001 - the other cells go on
        return f"{type(error).__name__}: {error}"
    seconds = time.process_time() - began
    values = result.values | {"cell_seconds": seconds, "machine": machine(), "statistic": STATISTIC}
    file = result_file(folder, cell.name)
    if result.arrays:
        with replacing(file.with_suffix(".npz")) as temporary, temporary.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, **result.arrays)
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(values, indent=1))
    return ""
