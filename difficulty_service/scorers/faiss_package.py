"""Access to faiss, an optional package: import, its GPU, check of the features."""

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from difficulty_service.base.errors import Setting, StatisticsError
from difficulty_service.base.extras import needs_extra, pip_command

TEMPORARY_BYTES = 256 << 20
"""Memory that faiss takes on a GPU from the start; its own choice is 1.5 GiB."""


def load_faiss(parameter: str = "scorers") -> ModuleType:
    """Imports faiss and limits it to the number of threads that torch uses."""
    with needs_extra(
        "a search for neighbours (kmeans, knn, near duplicates)",
        "cpu",
        or_else=f", or with an NVIDIA GPU: {pip_command('gpu')}; rmd works without",
        parameter=parameter,
    ):
        import faiss
    faiss.omp_set_num_threads(torch.get_num_threads())
    module: ModuleType = faiss
    return module


def count_gpus(faiss: ModuleType) -> int:
    """Number of GPUs that this build of faiss can use; 0 for a CPU build."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


Place = Callable[[Any], Any]
"""Function from an index on the CPU to the same one where it computes."""


def search(
    faiss: ModuleType, device: torch.device | None, search_at: Callable[[Place | None], Tensor]
) -> Tensor:
    """What a search gives on the GPU of a device, or on the CPU where faiss or the GPU cannot.

    A GPU has the memory for it that PyTorch does not use, which gives back what it keeps unused.

    Args:
        device: Device of the run; None for a GPU where there is one.
        search_at: Searches with an index that it puts on a GPU by the function it is given, or on
            the CPU where that is None.
    """
    gpu = _gpu_of(faiss, device)
    if gpu is None:
        return search_at(None)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    try:
        return search_at(lambda index: faiss.index_cpu_to_gpu(_resources(faiss), gpu, index))
    except RuntimeError as error:  # all that faiss raises, such as for lack of memory
        warnings.warn(
            f"the CPU searches for neighbours, since faiss cannot on GPU {gpu}: {_reason(error)}",
            stacklevel=2,
        )
    return search_at(None)


def _gpu_of(faiss: ModuleType, device: torch.device | None) -> int | None:
    """Number of the GPU of a device; None where that is no GPU, or none for faiss."""
    if not count_gpus(faiss) or (device is not None and device.type != "cuda"):
        return None
    return 0 if device is None or device.index is None else device.index


def _resources(faiss: ModuleType) -> Any:  # noqa: ANN401 - faiss has no types
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(TEMPORARY_BYTES)
    return resources


def _reason(error: RuntimeError) -> str:
    """The last line of what faiss says, which begins with its own source."""
    return str(error).strip().splitlines()[-1]


def check_finite(features: Tensor) -> None:
    """Raises StatisticsError if a feature is NaN or infinite; shape (samples, dim)."""
    # One such value makes the sum non-finite, and a sum needs no memory for a mask.
    if torch.isfinite(features.sum(dtype=torch.float64)):
        return
    bad_rows = (~torch.isfinite(features)).any(dim=1).nonzero().flatten()
    raise StatisticsError(
        f"{len(bad_rows)} of {len(features)} feature vectors hold NaN or infinity, the first in "
        f"row {int(bad_rows[0])}",
        "extract the features again, with ",
        Setting("precision", "fp32"),
        " if it was bf16",
    )
