"""Columns colour the points of a map by whole numbers, whatever their values are."""

import base64
from typing import Any

import numpy as np
import pytest

from difficulty_service.reports.map_columns import LARGEST, NO_VALUE, packed_column
from difficulty_service.reports.sample_columns import SampleColumn


def values_of(packed: dict[str, Any]) -> list[int]:
    return np.frombuffer(base64.b64decode(packed["values"]), "<u2").tolist()


def test_a_category_is_numbered_by_its_names() -> None:
    column = SampleColumn("camera", "category", np.array([1, 0, np.nan]), categories=("A", "B"))

    packed = packed_column(column)

    assert values_of(packed) == [1, 0, NO_VALUE]
    assert packed["names"] == ["A", "B"]


@pytest.mark.parametrize(
    ("numbers", "expected", "texts"),
    [
        ([2.0, 6.0, np.nan, 4.0], [0, LARGEST, NO_VALUE, LARGEST // 2], ["6", "4", "2"]),
        ([5.0, 5.0], [0, 0], ["5"]),
        ([np.nan, np.nan], [NO_VALUE, NO_VALUE], []),
        ([-1.7e308, 1.7e308, np.inf], [0, LARGEST, NO_VALUE], ["1.7e+308", "0", "-1.7e+308"]),
    ],
    ids=["range", "constant", "nothing", "largest"],
)
def test_numbers_are_places_between_the_smallest_and_the_largest(
    numbers: list[float], expected: list[int], texts: list[str]
) -> None:
    packed = packed_column(SampleColumn("weight", "number", np.array(numbers)))

    assert values_of(packed) == expected
    assert [text for _, text in packed["texts"]] == texts
