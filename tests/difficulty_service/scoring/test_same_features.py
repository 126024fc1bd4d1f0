"""Gaussians that know none of the classes are refused."""

import pytest

from difficulty_service.errors import StatisticsError
from difficulty_service.scoring.same_features import require_same_features


def test_gaussians_of_which_no_class_matches_are_refused() -> None:
    description, fitted_on = {"class_names": ["cat", "dog"]}, {"class_names": ["0", "1", "2"]}

    with pytest.raises(
        StatisticsError, match=r"no class of the dataset \(cat, dog\) .* \(0, 1, 2\)"
    ) as caught:
        require_same_features(description, fitted_on)

    assert caught.value.parameter == "gaussians"


def test_one_class_in_common_is_enough() -> None:
    require_same_features({"class_names": ["cat", "dog"]}, {"class_names": ["dog", "owl"]})
