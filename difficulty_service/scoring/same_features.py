"""Which features may be scored with which Gaussians, by their descriptions."""

from collections.abc import Mapping
from typing import Any

from difficulty_service.errors import Setting, StatisticsError
from difficulty_service.feature_store.description import FEATURE_KEYS, LEAST_AGREEMENT
from difficulty_service.files.differences import differences
from difficulty_service.files.wording import list_names

SAMPLE_KEYS = ("precision", "fingerprint", "max_pixels", "corruption", "augment_runs", "seed")
"""Keys that, with those of the features, say which samples the features are of."""


def require_same_features(description: Mapping[str, Any], fitted_on: Mapping[str, Any]) -> None:
    """Refuses Gaussians that were fitted to another kind of features, or to other classes only.

    Features of the same network in float32 and in bfloat16 are of one kind where the precision was
    chosen by a comparison in which both gave the same ranks; see `precision_warnings`.

    Args:
        description: Description of the features to score.
        fitted_on: Description of the features that the Gaussians were fitted to.

    Raises:
        StatisticsError: The features are not of the same kind, and the message names each
            difference; or no class has the same name, so that no sample would get a score.
    """
    alike = agreement_of_precisions(description, fitted_on) is not None
    keys = tuple(key for key in FEATURE_KEYS if not (alike and key == "precision"))
    different = differences(
        _select(description, keys),
        _select(fitted_on, keys),
        names=("in the features", "in the Gaussians"),
    )
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


def agreement_of_precisions(
    description: Mapping[str, Any], fitted_on: Mapping[str, Any]
) -> float | None:
    """Spearman's correlation by which features of two precisions are as good as of one.

    Returns:
        None where the precisions are the same, or where nothing has shown that they are alike: the
        one in bfloat16 was asked for, or is that of a GPU.
    """
    both = {str(each.get("precision")): each for each in (description, fitted_on)}
    if set(both) != {"float32", "bfloat16"}:
        return None
    agreement = (both["bfloat16"].get("precision_pilot") or {}).get("agreement")
    return agreement if agreement is not None and agreement >= LEAST_AGREEMENT else None


def precision_warnings(
    description: Mapping[str, Any], fitted_on: Mapping[str, Any]
) -> tuple[str, ...]:
    """A sentence where features of one precision are scored by Gaussians of another."""
    agreement = agreement_of_precisions(description, fitted_on)
    if agreement is None:
        return ()
    return (
        f"the features are of {description['precision']} and those of the Gaussians of "
        f"{fitted_on['precision']}; the scores of some images agreed when the precision was chosen "
        f"(Spearman's correlation {agreement:.5f})",
    )


def are_same_samples(description: Mapping[str, Any], fitted_on: Mapping[str, Any]) -> bool:
    """Whether features of the same kind are also of the samples the Gaussians were fitted to."""
    return _select(description, SAMPLE_KEYS) == _select(fitted_on, SAMPLE_KEYS)


def _select(description: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: description.get(key) for key in keys}
