"""Which features may be scored with which Gaussians, by their descriptions."""

from collections.abc import Mapping
from typing import Any

from difficulty_service.errors import StatisticsError
from difficulty_service.files.differences import differences

FEATURE_KEYS = (
    "backbone",
    "weights_sha256",
    "features",
    "feature_dim",
    "precision",
    "preprocessing",
    "mode",
)
"""Keys of a description that say what kind of features a store holds."""

SAMPLE_KEYS = ("fingerprint", "max_pixels", "augment_runs", "seed")
"""Keys that, with those above, say which samples the features are of."""


def require_same_features(description: Mapping[str, Any], fitted_on: Mapping[str, Any]) -> None:
    """Refuses to score features with Gaussians that were fitted to another kind of features.

    Args:
        description: Description of the features to score.
        fitted_on: Description of the features that the Gaussians were fitted to.

    Raises:
        StatisticsError: The features are not of the same kind; the message names each difference.
    """
    different = differences(
        _select(description, FEATURE_KEYS),
        _select(fitted_on, FEATURE_KEYS),
        names=("in the features", "in the Gaussians"),
    )
    if different:
        raise StatisticsError(
            f"the Gaussians were fitted to other features ({'; '.join(different)})",
            parameter="gaussians",
        )


def are_same_samples(description: Mapping[str, Any], fitted_on: Mapping[str, Any]) -> bool:
    """Whether features of the same kind are also of the samples the Gaussians were fitted to."""
    return _select(description, SAMPLE_KEYS) == _select(fitted_on, SAMPLE_KEYS)


def _select(description: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: description.get(key) for key in keys}
