"""Configures the threads, BLAS and the heap of a process.

Imports nothing heavy, so that it can run first.
"""

import ctypes
import os
import platform
import sys
from pathlib import Path

from difficulty_service.base.control_groups import cpu_quota, memory_limit
from difficulty_service.base.threads import num_workers

SLEEPING = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "20"}
"""Environment variables by which threads that wait for each other sleep.

OpenMP of GNU, LLVM and Intel read the first, by one of which PyTorch, MKL and faiss compute.
OpenBLAS has the second: its threads watch for work for two to the power of it cycles, here some
0.4 ms and by default 27 ms. ONNX Runtime needs none, as each session computes on one thread.
"""

SILENT = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment variables by which libraries report nothing to those who make them."""

LIBRARY_SETTINGS = SLEEPING | SILENT

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameter numbers of mallopt in malloc.h
KEPT_BYTES, KEPT_SHARE = 1 << 30, 16
LARGEST_HEAP_BLOCK = 32 << 20  # the maximum that glibc allows


def configure_libraries() -> None:
    """Has libraries report nothing, and their threads, no more than cores, sleep while they wait.

    By default threads watch for work in a loop, which beside other work takes the cores from the
    threads that they wait for. The libraries count cores without the quota of a control group. Both
    are read when a library is loaded, so this must be called before. Processes that this one starts
    inherit it; values set by the user are kept.
    """
    for name, value in LIBRARY_SETTINGS.items():
        os.environ.setdefault(name, value)
    if cpu_quota() is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(num_workers()))


def enable_avx512_kernels(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Selects the AVX-512 kernels of OpenBLAS on AMD processors that have AVX-512, and names them.

    OpenBLAS chooses its kernels by the family of the processor. One that is older than the
    processor may not find AVX-512, which halves the speed of matrix products; that of NumPy 2.4
    finds it on the families 25 and 26. OpenBLAS reads the environment variable when NumPy is
    imported, so this must be called before. A value set by the user is kept.
    """
    if "OPENBLAS_CORETYPE" in os.environ:
        return None
    try:
        flags = cpuinfo.read_text(errors="replace")
    except OSError:
        return None
    if "AuthenticAMD" not in flags or "avx512bw" not in flags:
        return None
    os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    return "SkylakeX"


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for the next batch; whether anything was changed.

    A network on a CPU allocates the same megabytes in every layer of every batch. By default glibc
    returns them to the system in between, and the page faults that follow take a fifth of the time.
    Blocks of up to 32 MB are kept instead, up to 1 GB in all, or a sixteenth of what the control
    groups allow. Environment variables of the user (`MALLOC_TRIM_THRESHOLD_` and others) take
    precedence.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    kept = min(KEPT_BYTES, (memory_limit() or sys.maxsize) // KEPT_SHARE)
    library = ctypes.CDLL(None)
    results = [
        library.mallopt(TRIM_THRESHOLD, kept),
        library.mallopt(MMAP_THRESHOLD, min(LARGEST_HEAP_BLOCK, kept)),
    ]
    return all(results)


def give_back_freed_memory() -> None:
    """Returns what glibc keeps of freed memory to the system; without glibc it does nothing.

    Each thread keeps what it frees for itself: before a stage that needs large matrices elsewhere.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def have_arrow_use_malloc() -> None:
    """Has Arrow take its memory from malloc in a process that goes on for long.

    Its own allocator, mimalloc, does not use all again that threads have freed: a server that is
    asked 80 times a second took 2 MB more each minute, with nothing allocated.
    """
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
