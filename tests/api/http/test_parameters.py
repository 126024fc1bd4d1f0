"""Numbers in requests, of any length."""

import pytest

from api.http.parameters import parse_decimal


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("7", 7),
        ("999", 999),
        ("007", 7),
        ("0" * 10_000 + "5", 5),
        ("1000", None),
        ("0000000000999000", None),
        ("9" * 10_000, None),
        ("", None),
        ("-1", None),
        ("1.0", None),
        ("\u0661", None),
        ("²", None),
    ],
)
def test_a_number_is_ascii_digits_up_to_the_largest(text: str, number: int | None) -> None:
    assert parse_decimal(text, 999) == number
