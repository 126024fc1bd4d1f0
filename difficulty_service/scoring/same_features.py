"""Which features may be scored with which Gaussians, by their descriptions."""

from collections.abc import Mapping
from typing import Any

from difficulty_service.errors import Setting, StatisticsError
from difficulty_service.feature_store.kinds import kind_differences
from difficulty_service.files.wording import list_names

SAMPLE_KEYS = ("precision", "fingerprint", "max_pixels", "corruption", "augment_runs", "seed")
"""Keys that, with those of the features, say which samples the features are of."""


def require_same_features(description: Mapping[str, Any], fitted_on: Mapping[str, Any]) -> None:
    """Refuses Gaussians that were fitted to another kind of features, or to other classes only.

    Args:
        description: Description of the features to score.
        fitted_on: Description of the features that the Gaussians were fitted to.

    Raises:
        StatisticsError: The features are not of the same kind, and the message names each
            difference; or no class has the same name, so that no sample would get a score.
    """
    different = kind_differences(description, fitted_on, ("in the features", "in the Gaussians"))
    if different:
        raise StatisticsError(
            f"the Gaussians were fitted to other features ({'; '.join(different)})",
            parameter="gaussians",
        )
    names, fitted_names = description["class_names"], fitted_on["class_names"]
    if set(names).isdisjoint(fitted_names):
        raise StatisticsError(
            f"no class of the dataset ({list_names(names)}) is among those that the Gaussians were "
            f"fitted to ({list_names(fitted_names)}), so no image would get a score",
            "give Gaussians of the same classes, or leave out ",
            Setting("gaussians"),
            " to fit new ones",
            parameter="gaussians",
        )


def are_same_samples(description: Mapping[str, Any], fitted_on: Mapping[str, Any]) -> bool:
    """Whether features of the same kind are also of the samples the Gaussians were fitted to."""
    return _select(description, SAMPLE_KEYS) == _select(fitted_on, SAMPLE_KEYS)


def _select(description: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: description.get(key) for key in keys}
