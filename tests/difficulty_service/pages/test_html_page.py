"""How numbers look on every page."""

import pytest

from difficulty_service.pages.html_page import decimals


@pytest.mark.parametrize(
    ("number", "places", "text"),
    [
        (1234.56, 1, "1,234.6"),
        (-2.345, 2, "\N{MINUS SIGN}2.35"),
        (-0.04, 1, "0.0"),
        (-0.0004, 3, "0.000"),
        (0.5, 3, "0.500"),
        (float("nan"), 1, "\N{EN DASH}"),
    ],
)
def test_a_number_has_a_true_minus_sign_and_no_negative_zero(
    number: float, places: int, text: str
) -> None:
    assert decimals(number, places) == text
