"""Which devices compute, found out by computing on them."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import takewhile

import torch

from difficulty_service.base.errors import DeviceError
from difficulty_service.base.wording import count_of

NO_GPU = ("", "-1", "NoDevFiles")
"""Names in CUDA_VISIBLE_DEVICES of no GPU; the last one is how Slurm says that a job has none."""


def problem_of(name: str) -> str | None:
    """Why the device of this name cannot compute; None where it can.

    A GPU may be there that the installed PyTorch has no kernels for.
    """
    try:
        result = one_and_one(name)
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return None if result == 2 else f"1 + 1 is {result:g} on it"  # noqa: PLR2004


def failure_of_gpu(name: str) -> DeviceError | None:
    """The error of a GPU that this process has used and that computes no longer; None without one.

    After an illegal access to memory, for example, a GPU refuses all further work of the process,
    which only another process gets done. Lack of memory is no such failure.

    Args:
        name: Device of the options; for `auto` and `all` the first GPU.
    """
    if not torch.cuda.is_initialized():
        return None
    gpu = name if name.startswith("cuda") else "cuda"
    try:
        one_and_one(gpu)
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        return DeviceError(f"device {gpu!r} failed: {str(error).splitlines()[0]}")
    return None


def one_and_one(name: str) -> float:
    """Their sum, as the device of this name computes it."""
    one = torch.ones(1, device=torch.device(name))
    return float((one + one).cpu())


def all_gpus() -> list[torch.device]:
    """The NVIDIA GPUs of this machine; none where the first one does not compute."""
    # The others are not tried, which would take memory on each of them in this process.
    number = torch.cuda.device_count() if has_gpu() else 0
    return [torch.device("cuda", index) for index in range(number)]


def named_gpus() -> list[str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, up to one of NO_GPU; none where it is not set.

    CUDA says nothing of a name that is wrong: it leaves out that GPU and all after it.
    """
    names = re.split(r"[,\s]+", os.environ.get("CUDA_VISIBLE_DEVICES", "").strip(", "))
    return list(takewhile(lambda name: name not in NO_GPU, names))


def left_out_gpus() -> str | None:
    """A clause about the GPUs that CUDA_VISIBLE_DEVICES names and CUDA does not find, or None."""
    named, found = named_gpus(), torch.cuda.device_count()
    if found >= len(named):
        return None
    number = count_of(len(named), "GPU")
    return f"CUDA_VISIBLE_DEVICES names {number} ({', '.join(named)}), and CUDA finds {found}"


@contextmanager
def current(device: torch.device | str) -> Iterator[None]:
    """Within the context, a GPU is that of this thread, for all that names none.

    PyTorch would ask the first GPU for its abilities, and take memory on it. Any device but one
    such as "cuda:1" changes nothing.
    """
    if not str(device).startswith("cuda:"):
        yield
        return
    with torch.cuda.device(device):
        yield


@cache
def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU that computes; warns where there is one that does not."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_available = torch.cuda.is_available()
    # PyTorch says so where the driver is too old.
    problem = str(caught[0].message).split(" (Triggered")[0] if caught else None
    if is_available:
        problem = problem_of("cuda")
    if problem is not None:
        warnings.warn(f"no GPU is used, as it cannot compute here: {problem}", stacklevel=2)
    return is_available and problem is None
