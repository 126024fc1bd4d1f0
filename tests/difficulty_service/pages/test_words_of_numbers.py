"""Chances and ranks as people read them."""

import math

import pytest

from difficulty_service.pages.html_page import chance, rank

NO_BREAK = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("log_odds", "text"),
    [
        (0.0, "50.0 %"),
        (math.log(19), "95.0 %"),
        (6.5, "99.8 %"),
        (-100.0, "< 0.1 %"),
        (1000.0, "> 99.9 %"),
        (math.inf, "> 99.9 %"),
        (math.nan, "\N{EN DASH}"),
    ],
)
def test_log_odds_are_shown_as_a_chance_that_is_never_all_or_nothing(
    log_odds: float, text: str
) -> None:
    assert chance(log_odds).replace(NO_BREAK, " ") == text


@pytest.mark.parametrize(
    ("percentile", "text"),
    [
        (1.0, "the hardest of all images"),
        (0.9999, "harder than 99.9 % of all"),
        (0.5, "harder than 50.0 % of all"),
        (math.nan, ""),
    ],
)
def test_no_image_is_harder_than_all(percentile: float, text: str) -> None:
    assert rank(percentile, "image").replace(NO_BREAK, " ") == text
