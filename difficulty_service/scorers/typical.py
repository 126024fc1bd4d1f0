"""Typical samples: of each cluster of the features, those whose nearest neighbours are nearest.

After TypiClust of Hacohen, Dekel and Weinshall (2022), who find that for few labels typical samples
teach more than uncertain ones. As there, clusters without a label come first, the largest of these
before the others; unlike there, neighbours are those of the whole cluster throughout, so that all
is computed once.
"""

import heapq

import numpy as np
import torch
from torch import Tensor

from difficulty_service.scorers.kmeans import fit_kmeans, nearest_centroids
from difficulty_service.scorers.knn import knn_distance
from difficulty_service.scorers.pool import Pool, Positions

MOST_CLUSTERS = 500
NUM_NEIGHBOURS = 20


def choose_typical(pool: Pool, count: int) -> Positions:
    """Typical samples of the clusters that have the fewest labels.

    There are as many clusters as labels in the end, up to MOST_CLUSTERS, and fewer where samples
    are few. The time is that of K-means and of comparing all samples of each cluster.

    Raises:
        MissingPackage: faiss is not installed.
    """
    assert pool.features is not None  # noqa: S101 - the registry says that they are read
    features, free = pool.features, pool.free
    count = min(count, int(free.sum()))
    if not count:
        return np.empty(0, np.int64)
    covered = features[:0] if pool.covered is None else pool.covered
    labels = count + len(covered) + int((~free).sum())
    centroids = fit_kmeans(features, min(labels, MOST_CLUSTERS, len(features)), pool.seed)
    clusters = nearest_centroids(features, centroids).numpy()
    number = len(centroids)
    sizes = np.bincount(clusters, minlength=number)
    labelled = np.bincount(clusters[~free], minlength=number)
    if len(covered):
        labelled += np.bincount(nearest_centroids(covered, centroids).numpy(), minlength=number)
    waiting = []
    members: dict[int, list[int]] = {}
    by_cluster = np.split(np.argsort(clusters, kind="stable"), sizes.cumsum()[:-1])
    for cluster, rows in enumerate(by_cluster):
        ordered = rows[_isolation(features[torch.from_numpy(rows)]).numpy().argsort(kind="stable")]
        members[cluster] = ordered[free[ordered]].tolist()[::-1]
        waiting.append((int(labelled[cluster]), -len(rows), cluster))
    heapq.heapify(waiting)
    chosen: list[int] = []
    while len(chosen) < count:
        known, size, cluster = heapq.heappop(waiting)
        if members[cluster]:
            chosen.append(members[cluster].pop())
            heapq.heappush(waiting, (known + 1, size, cluster))
    return np.array(chosen, np.int64)


def _isolation(features: Tensor) -> Tensor:
    """Mean distance of each sample of a cluster to its nearest neighbours in it. Shape (samples,).

    Zero for a cluster of one.
    """
    neighbours = min(NUM_NEIGHBOURS, len(features) - 1)
    if neighbours < 1:
        return torch.zeros(len(features))
    return knn_distance(features, features, neighbours, exclude_self=True)
