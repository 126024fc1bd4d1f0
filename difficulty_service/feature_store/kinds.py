"""Which features are of the same kind, by the descriptions of their stores."""

from collections.abc import Collection, Mapping
from typing import Any

from difficulty_service.files.differences import differences

FEATURE_KEYS = (
    "backbone",
    "weights_sha256",
    "features",
    "feature_dim",
    "precision",
    "flip",
    "preprocessing",
    "mode",
)
"""Keys of a description that say what kind of features a store holds."""

LEAST_AGREEMENT = 0.999
"""Spearman's correlation of scores from which on features of float32 and of bfloat16 are alike."""


def feature_kind(description: Mapping[str, Any]) -> dict[str, Any]:
    """What made some features, by their description; null for what is not known."""
    return {key: description.get(key) for key in FEATURE_KEYS}


def kind_differences(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    names: tuple[str, str],
    *,
    besides: Collection[str] = (),
) -> list[str]:
    """How features differ in kind, a phrase for each key; empty where they are of the same kind.

    Features of the same network in float32 and in bfloat16 are of the same kind where the precision
    was chosen by a comparison in which both gave the same ranks; see `precision_warnings`.

    Args:
        first: Description of some features.
        second: Description of others.
        names: Words that follow the values, such as `("in the features", "in the Gaussians")`.
        besides: Other keys that must agree.
    """
    alike = agreement_of_precisions(first, second) is not None
    one, other = (
        feature_kind(each) | {key: each.get(key) for key in besides} for each in (first, second)
    )
    return differences(one, other, names=names, ignored=("precision",) if alike else ())


def known_differences(
    first: Mapping[str, Any], second: Mapping[str, Any], names: tuple[str, str]
) -> list[str]:
    """As `kind_differences`, of what both descriptions know, in any precision.

    Features of another precision are close enough for a classifier, and arrays of one's own do not
    say what made them.
    """
    unknown = {key for key in FEATURE_KEYS if None in (first.get(key), second.get(key))}
    one, other = (feature_kind(each) for each in (first, second))
    return differences(one, other, names=names, ignored=unknown | {"precision"})


def agreement_of_precisions(first: Mapping[str, Any], second: Mapping[str, Any]) -> float | None:
    """Spearman's correlation by which features of two precisions are as good as of one.

    Returns:
        None where the precisions are the same, or where nothing has shown that they are alike: the
        one in bfloat16 was asked for, or is that of a GPU.
    """
    both = {str(each.get("precision")): each for each in (first, second)}
    if set(both) != {"float32", "bfloat16"}:
        return None
    agreement = (both["bfloat16"].get("precision_pilot") or {}).get("agreement")
    return agreement if agreement is not None and agreement >= LEAST_AGREEMENT else None


def precision_warnings(
    description: Mapping[str, Any], made_for: Mapping[str, Any], owner: str
) -> tuple[str, ...]:
    """A sentence where features of one precision meet what was made for another.

    Args:
        description: Description of the features.
        made_for: Description of the features that Gaussians or a head were made for.
        owner: What was made for them, such as "the Gaussians".
    """
    agreement = agreement_of_precisions(description, made_for)
    if agreement is None:
        return ()
    return (
        f"the features are of {description['precision']} and those of {owner} of "
        f"{made_for['precision']}; the scores of some images agreed when the precision was chosen "
        f"(Spearman's correlation {agreement:.5f})",
    )
