"""Access to faiss, an optional package: import, number of GPUs, check of the features."""

from types import ModuleType

import torch
from torch import Tensor

from difficulty_service.base.errors import Setting, StatisticsError
from difficulty_service.base.extras import needs_extra, pip_command


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
