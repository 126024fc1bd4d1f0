"""Sets up BLAS and the heap for this work; imports nothing heavy, so that it can come first."""

import ctypes
import os
import platform
from pathlib import Path

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # numbers of mallopt's parameters, in malloc.h
KEPT_BYTES = 1 << 30
LARGEST_HEAP_BLOCK = 32 << 20  # the most that glibc allows


def prefer_wide_kernels(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Asks OpenBLAS for its AVX-512 kernels on AMD processors that have AVX-512.

    The OpenBLAS inside current NumPy wheels takes recent AMD cores for a processor without
    AVX-512, which halves the speed of a matrix product. The variable is read when NumPy is
    imported, so this must run before; a value the user set is left alone.

    Returns:
        The kernel asked for, or None where nothing was changed.
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
    """Has the C library keep freed memory for the next batch instead of giving it back.

    A network on a CPU asks for the same megabytes again in every layer of every batch. Left alone,
    glibc returns them to the system in between, and each return is paid for with page faults: a
    fifth of the time. Blocks of up to 32 MB are kept now, up to 1 GB in all; variables of the
    user's own (`MALLOC_TRIM_THRESHOLD_` and its like) win.

    Returns:
        Whether anything was changed: only glibc is told.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    library = ctypes.CDLL(None)
    told = [
        library.mallopt(TRIM_THRESHOLD, KEPT_BYTES),
        library.mallopt(MMAP_THRESHOLD, LARGEST_HEAP_BLOCK),
    ]
    return all(told)
