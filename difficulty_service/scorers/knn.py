"""Mean distance to the nearest neighbours: few images look like this one.

Ignores labels, as K-means does; beside the relative Mahalanobis distance it tells a rare image
from a mislabelled one.
"""

from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from difficulty_service.errors import StatisticsError
from difficulty_service.scorers.faiss_package import check_finite, count_gpus, load_faiss

NUM_NEIGHBOURS = 10
"""Neighbours averaged over where nobody asks for another number."""

EXACT_UP_TO = 200_000
"""On the CPU, more references than this are searched with an index of lists; on a GPU, never."""

PROBED_LISTS = 64
"""Lists searched for each query; more lists, fewer missed neighbours and as much more time."""

GATHERED_NUMBERS = 16_000_000
"""Neighbours' features are gathered in blocks of about this many numbers."""


def knn_distance(
    queries: Tensor, references: Tensor, num_neighbours: int, *, exclude_self: bool
) -> Tensor:
    """Mean Euclidean distance to the nearest references; larger is harder.

    Args:
        queries: Shape (samples, dim).
        references: Shape (references, dim).
        num_neighbours: How many of the nearest references to average over.
        exclude_self: Row i of the queries is row i of the references, and is no neighbour of
            itself. Its exact duplicates are.

    Returns:
        Distances in the unit of the features, float32 on the CPU. Shape (samples,).

    Raises:
        StatisticsError: Not more references than neighbours, a feature that is not finite, or
            `exclude_self` with queries that are not the references.
        MissingPackage: faiss is not installed.
    """
    _check(queries, references, num_neighbours, exclude_self=exclude_self)
    faiss = load_faiss()
    queries, references = queries.cpu(), references.cpu()
    # faiss finds distances as differences of squared lengths, which cancel far from the origin.
    centre = references.mean(dim=0, dtype=torch.float32)
    index = _build_index(faiss, references, centre)
    rows_at_once = max(1, GATHERED_NUMBERS // (num_neighbours * queries.shape[1]))
    distances = torch.empty(len(queries))
    for start in range(0, len(queries), rows_at_once):
        rows = queries[start : start + rows_at_once].float()
        found = _search(faiss, index, rows - centre, num_neighbours + exclude_self)
        if exclude_self:
            found = _without_self(found, start)
        differences = references[found].float() - rows[:, None]
        distances[start : start + len(rows)] = torch.linalg.vector_norm(differences, dim=2).mean(1)
    return distances


def _check(queries: Tensor, references: Tensor, num_neighbours: int, *, exclude_self: bool) -> None:
    if not 1 <= num_neighbours < len(references):
        raise StatisticsError(
            f"{num_neighbours} neighbours among {len(references)} references; the number of "
            "neighbours must be at least 1 and smaller than the number of references"
        )
    if exclude_self and queries.shape != references.shape:
        raise StatisticsError(
            f"queries of shape {tuple(queries.shape)} cannot be told from references of shape "
            f"{tuple(references.shape)} by row; exclude_self needs them to be the same samples"
        )
    check_finite(references)
    if queries is not references:
        check_finite(queries)


def _build_index(faiss: ModuleType, references: Tensor, centre: Tensor) -> Any:  # noqa: ANN401 - faiss has no types
    """Exact on a GPU or for few references; otherwise lists of references near one centroid.

    With 4 √n lists and 64 of them probed, 250,000 vectors in 200 classes kept all their true
    neighbours; 250,000 without any classes kept 99.5 % where 12 directions varied and 93 % where
    24 did. A missed one is replaced by the next nearest, so a mean distance is never too small;
    in the worst of these it was too large by 0.3 %, at a quarter of the time.
    """
    num_gpus = count_gpus(faiss)
    index = faiss.IndexFlatL2(references.shape[1])
    if num_gpus:
        index = faiss.index_cpu_to_all_gpus(index)
    elif len(references) > EXACT_UP_TO:
        index = _build_lists(faiss, index, references, centre)
    for chunk in references.split(EXACT_UP_TO):
        index.add((chunk.float() - centre).numpy())
    return index


def _build_lists(faiss: ModuleType, quantizer: Any, references: Tensor, centre: Tensor) -> Any:  # noqa: ANN401 - faiss has no types
    num_lists = int(4 * len(references) ** 0.5)
    index = faiss.IndexIVFFlat(quantizer, references.shape[1], num_lists)
    index.nprobe = min(PROBED_LISTS, num_lists)
    index.cp.min_points_per_centroid = 1
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(references), generator=generator)[: 64 * num_lists]
    index.train((references[chosen].float() - centre).numpy())
    # Without this the index, which outlives the call, would point at a freed quantizer.
    index.own_fields = True
    quantizer.this.disown()
    return index


def _search(faiss: ModuleType, index: Any, rows: Tensor, count: int) -> Tensor:  # noqa: ANN401 - faiss has no types
    """Indices of the nearest references. Shape (rows, count)."""
    found: np.ndarray[Any, np.dtype[np.int64]] = index.search(rows.numpy(), count)[1]
    short = (found < 0).any(axis=1)
    if short.any():
        # The probed lists of these rows held fewer references than asked for.
        everywhere = faiss.SearchParametersIVF(nprobe=index.nlist)
        found[short] = index.search(rows.numpy()[short], count, params=everywhere)[1]
    return torch.from_numpy(found)


def _without_self(found: Tensor, first_row: int) -> Tensor:
    """Drops each row's own index or, where enough duplicates hide it, the last index."""
    own = found == torch.arange(first_row, first_row + len(found))[:, None]
    own[~own.any(dim=1), -1] = True
    return found[~own].view(len(found), -1)
