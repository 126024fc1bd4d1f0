"""Configures BLAS and the heap of a process; imports nothing heavy, so that it can run first."""

import ctypes
import os
import platform
from pathlib import Path

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameter numbers of mallopt in malloc.h
KEPT_BYTES = 1 << 30
LARGEST_HEAP_BLOCK = 32 << 20  # the maximum that glibc allows


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
    Blocks of up to 32 MB are kept instead, up to 1 GB in all. Environment variables of the user
    (`MALLOC_TRIM_THRESHOLD_` and others) take precedence.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    library = ctypes.CDLL(None)
    results = [
        library.mallopt(TRIM_THRESHOLD, KEPT_BYTES),
        library.mallopt(MMAP_THRESHOLD, LARGEST_HEAP_BLOCK),
    ]
    return all(results)


def give_back_freed_memory() -> None:
    """Returns what glibc keeps of freed memory to the system; without glibc it does nothing.

    Each thread keeps what it frees for itself: before a stage that needs large matrices elsewhere.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
