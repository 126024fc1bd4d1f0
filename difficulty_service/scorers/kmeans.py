"""Distance to the nearest K-means centroid: a sample far from every cluster is hard.

A baseline of Cui et al. (2023), table 8, who do not give the number of clusters. Sorscher et al.
(2022), who proposed the score, found one cluster per class to work well on ImageNet.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.base.float32_products import full_float32
from difficulty_service.scorers import ScorerInput
from difficulty_service.scorers.faiss_package import Place, check_finite, load_faiss, search

POINTS_PER_CENTROID = 256
"""Maximum number of samples per centroid in the fit; more change the centroids very little."""

ITERATIONS = 25

DISTANCES_PER_BLOCK = 4_000_000
"""Approximate number of distances to centroids that are computed at a time."""


def score_samples(samples: ScorerInput) -> Tensor:
    """The column `kmeans`, with a centre for each class; errors as for the functions below."""
    centroids = fit_kmeans(samples.features, samples.num_classes, samples.seed, samples.device)
    return kmeans_distance(samples.features, centroids)


def fit_kmeans(
    features: Tensor, num_clusters: int, seed: int, device: torch.device | None = None
) -> Tensor:
    """Fits K-means centroids, on a GPU if faiss supports it.

    Args:
        features: Shape (samples, dim).
        device: Device of the search; None for a GPU where faiss has one.

    Returns:
        Centroids, float32 on the CPU. Shape (num_clusters, dim).

    Raises:
        StatisticsError: There are fewer samples than clusters, or a feature is not finite.
        MissingPackage: faiss is not installed.
    """
    if not 1 <= num_clusters <= len(features):
        raise StatisticsError(
            f"{num_clusters} clusters of {len(features)} samples",
            "the number of clusters must lie between 1 and the number of samples",
        )
    check_finite(features)
    faiss = load_faiss()
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(features), generator=generator)
    chosen = chosen[: POINTS_PER_CENTROID * num_clusters].sort().values
    points = features[chosen.to(features.device)].float().cpu()
    # faiss computes distances from squared lengths, which cancel far from the origin.
    centre = points.mean(dim=0)

    def centroids_at(place: Place | None) -> Tensor:
        clustering = faiss.Kmeans(
            points.shape[1],
            num_clusters,
            niter=ITERATIONS,
            seed=seed,
            min_points_per_centroid=1,
            max_points_per_centroid=POINTS_PER_CENTROID,
        )
        if place is not None:
            clustering.index = place(clustering.index)
        clustering.train((points - centre).numpy())
        return torch.from_numpy(clustering.centroids)

    return search(faiss, device, centroids_at) + centre


@full_float32()
def kmeans_distance(features: Tensor, centroids: Tensor) -> Tensor:
    """Euclidean distance to the nearest centroid; larger is harder.

    Args:
        features: Shape (samples, dim).
        centroids: From `fit_kmeans`. Shape (clusters, dim).

    Returns:
        Distances in the unit of the features, float32. Shape (samples,).

    Raises:
        StatisticsError: A feature is not finite.
    """
    check_finite(features)
    centroids = centroids.to(features.device)
    # Computed again, because the comparison is too coarse for small distances.
    return torch.cat(
        [
            torch.linalg.vector_norm(batch.float() - centroids[nearest], dim=1)
            for batch, nearest in _nearest(features, centroids)
        ]
    )


@full_float32()
def nearest_centroids(features: Tensor, centroids: Tensor) -> Tensor:
    """Index of the nearest centroid of each sample; arguments and errors as `kmeans_distance`."""
    check_finite(features)
    centroids = centroids.to(features.device)
    return torch.cat([nearest for _, nearest in _nearest(features, centroids)])


def _nearest(features: Tensor, centroids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Some features at a time with the index of the nearest centroid of each."""
    centre = centroids.mean(dim=0)
    centred = centroids - centre
    half_squares = centred.square().sum(dim=1) / 2
    for batch in features.split(max(1, DISTANCES_PER_BLOCK // len(centroids))):
        yield batch, (half_squares - (batch.float() - centre) @ centred.T).argmin(dim=1)
