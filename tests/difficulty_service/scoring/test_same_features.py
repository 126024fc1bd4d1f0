"""Gaussians that know none of the classes, or were fitted to other features, are refused."""

from typing import Any

import pytest

from difficulty_service.base.errors import StatisticsError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.scoring.fitted_gaussians import require_same_features


def described(*class_names: str, **known: object) -> FeatureDescription:
    needed = {"class_names": class_names, "num_shards": 1, "augment_runs": 0}
    return FeatureDescription.of(needed | known)


def features(precision: str, backbone: str = "builtin", **known: object) -> FeatureDescription:
    return described("cat", precision=precision, backbone=backbone, **known)


def measured(agreement: float | None) -> dict[str, Any]:
    speeds = {"float32": 20.0, "bfloat16": 60.0}
    return {"precision_pilot": {"num_images": 512, **speeds, "agreement": agreement}}


FULL, HALF = features("float32"), features("bfloat16")
COMPARED = features("bfloat16", **measured(0.9995))


def test_gaussians_of_which_no_class_matches_are_refused() -> None:
    with pytest.raises(
        StatisticsError, match=r"no class of the dataset \(cat, dog\) .* \(0, 1, 2\)"
    ) as caught:
        require_same_features(described("cat", "dog"), described("0", "1", "2"))

    assert caught.value.parameter == "gaussians"


def test_one_class_in_common_is_enough() -> None:
    require_same_features(described("cat", "dog"), described("dog", "owl"))


@pytest.mark.parametrize("both", [(FULL, COMPARED), (COMPARED, FULL)])
def test_precisions_that_were_compared_may_be_mixed_with_a_warning(
    both: tuple[FeatureDescription, FeatureDescription],
) -> None:
    require_same_features(*both)

    (warning,) = both[0].precision_warnings(both[1], "the Gaussians")
    assert f"features are of {both[0].precision} and those of the Gaussians" in warning
    assert "Spearman's correlation 0.99950" in warning
    assert not both[0].is_of_same_samples(both[1])


@pytest.mark.parametrize(
    "half", [HALF, *(features("bfloat16", **measured(least)) for least in (0.98, None))]
)
def test_precisions_that_nothing_has_shown_to_agree_are_not_mixed(
    half: FeatureDescription,
) -> None:
    with pytest.raises(StatisticsError, match='precision: "float32" in the features'):
        require_same_features(features("float32", **measured(0.9999)), half)

    assert FULL.precision_warnings(half, "the Gaussians") == ()


def test_alike_precisions_do_not_excuse_another_backbone() -> None:
    with pytest.raises(
        StatisticsError, match=r'\(backbone: "builtin" in the features, "clip" in the Gaussians\)'
    ):
        require_same_features(FULL, features("bfloat16", "clip", **measured(0.9999)))


def test_features_of_one_precision_need_no_warning() -> None:
    assert COMPARED.precision_warnings(COMPARED, "the Gaussians") == ()
