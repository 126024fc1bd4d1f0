"""Features and labels in, one score per sample out; larger is harder."""

from collections.abc import Callable

from difficulty_service.scorers.kmeans import kmeans_distance
from difficulty_service.scorers.knn import knn_distance
from difficulty_service.scorers.mahalanobis import relative_mahalanobis

SCORERS: dict[str, Callable[..., object]] = {
    "rmd": relative_mahalanobis,
    "kmeans": kmeans_distance,
    "knn": knn_distance,
}
"""What each scorer fits differs, so each is called in its own way; the names are the user's."""
