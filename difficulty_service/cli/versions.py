"""`difficulty --version`: what a report of a mistake should say of the machine."""

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from difficulty_service.base.threads import num_workers

PACKAGES = (
    *("torch", "torchvision", "open_clip_torch", "timm", "transformers", "faiss-cpu", "faiss-gpu"),
    *("numpy", "scipy", "pyarrow", "pillow", "ray", "fastapi"),
)
"""Packages whose version changes what comes out, or whether anything does."""


def describe_versions() -> str:
    """This package, the others that are here, and the devices; a line each."""
    return "\n".join(
        [
            f"difficulty {version('difficulty-service')}",
            f"Python {platform.python_version()} on {platform.platform()}",
            *_packages(),
            *_devices(),
        ]
    )


def _packages() -> Iterator[str]:
    for name in PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def _devices() -> Iterator[str]:
    # Imported here, because it takes seconds and the line above is what scripts read.
    import torch

    yield (
        f"cpu: {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{os.cpu_count()} processors, {num_workers()} of them for this process"
    )
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        memory = torch.cuda.get_device_properties(index).total_memory / 2**30
        yield f"cuda:{index}: {name}, {memory:.0f} GiB, CUDA {torch.version.cuda}"
    if torch.backends.mps.is_available():
        yield "mps: Apple GPU"
