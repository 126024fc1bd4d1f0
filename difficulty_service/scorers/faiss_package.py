"""The home of faiss, which is optional: finds it, counts its GPUs, refuses what it cannot rank."""

from types import ModuleType

import torch
from torch import Tensor

from difficulty_service.errors import MissingPackage, StatisticsError


def load_faiss() -> ModuleType:
    """The faiss module, set to as many threads as torch uses.

    Raises:
        MissingPackage: Neither build of faiss is installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingPackage(
            "the kmeans and knn scorers need faiss, which is not installed: "
            "pip install 'difficulty-service[cpu]', or with an NVIDIA GPU "
            "pip install 'difficulty-service[gpu]'; rmd needs neither"
        ) from error
    faiss.omp_set_num_threads(torch.get_num_threads())
    module: ModuleType = faiss
    return module


def count_gpus(faiss: ModuleType) -> int:
    """GPUs this build of faiss can use; the CPU build counts them too, but cannot use them."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def check_finite(features: Tensor) -> None:
    """Raises StatisticsError naming the rows that hold NaN or infinity; shape (samples, dim)."""
    # A sum is spoilt by any such number and, unlike a mask, needs no memory of its own.
    if torch.isfinite(features.sum(dtype=torch.float64)):
        return
    spoilt = (~torch.isfinite(features)).any(dim=1).nonzero().flatten()
    raise StatisticsError(
        f"{len(spoilt)} of {len(features)} feature vectors hold NaN or infinity, the first in row "
        f"{int(spoilt[0])}; extract the features again, with --precision fp32 if it was bf16"
    )
