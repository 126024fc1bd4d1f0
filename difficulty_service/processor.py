"""Lets OpenBLAS use the processor it runs on; imports nothing, so that it can come first."""

import os
from pathlib import Path


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
