"""Gaussians that know none of the classes, or were fitted to other features, are refused."""

from typing import Any

import pytest

from difficulty_service.errors import StatisticsError
from difficulty_service.feature_store.kinds import precision_warnings
from difficulty_service.scoring.same_features import are_same_samples, require_same_features

FULL: dict[str, Any] = {"class_names": ["cat"], "backbone": "builtin", "precision": "float32"}
HALF = FULL | {"precision": "bfloat16"}


def measured(agreement: float | None) -> dict[str, Any]:
    return {"precision_pilot": {"num_images": 512, "agreement": agreement}}


def test_gaussians_of_which_no_class_matches_are_refused() -> None:
    description, fitted_on = {"class_names": ["cat", "dog"]}, {"class_names": ["0", "1", "2"]}

    with pytest.raises(
        StatisticsError, match=r"no class of the dataset \(cat, dog\) .* \(0, 1, 2\)"
    ) as caught:
        require_same_features(description, fitted_on)

    assert caught.value.parameter == "gaussians"


def test_one_class_in_common_is_enough() -> None:
    require_same_features({"class_names": ["cat", "dog"]}, {"class_names": ["dog", "owl"]})


@pytest.mark.parametrize("both", [(FULL, HALF | measured(0.9995)), (HALF | measured(0.9995), FULL)])
def test_precisions_that_were_compared_may_be_mixed_with_a_warning(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    require_same_features(*both)

    (warning,) = precision_warnings(*both, "the Gaussians")
    assert f"features are of {both[0]['precision']} and those of the Gaussians" in warning
    assert "Spearman's correlation 0.99950" in warning
    assert not are_same_samples(*both)


@pytest.mark.parametrize("half", [HALF, HALF | measured(0.98), HALF | measured(None)])
def test_precisions_that_nothing_has_shown_to_agree_are_not_mixed(half: dict[str, Any]) -> None:
    with pytest.raises(StatisticsError, match='precision: "float32" in the features'):
        require_same_features(FULL | measured(0.9999), half)

    assert precision_warnings(FULL, half, "the Gaussians") == ()


def test_alike_precisions_do_not_excuse_another_backbone() -> None:
    with pytest.raises(
        StatisticsError, match=r'\(backbone: "builtin" in the features, "clip" in the Gaussians\)'
    ):
        require_same_features(FULL, HALF | measured(0.9999) | {"backbone": "clip"})


def test_features_of_one_precision_need_no_warning() -> None:
    both = HALF | measured(0.9999)

    assert precision_warnings(both, both, "the Gaussians") == ()
