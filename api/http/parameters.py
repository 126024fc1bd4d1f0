"""Whole numbers in the text of a request."""


def parse_decimal(text: str, largest: int) -> int | None:
    """The number that a text of ASCII digits stands for; None for any other text.

    Python refuses to convert thousands of digits, so the length is checked before.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(largest)) or int(digits) > largest:
        return None
    return int(digits)
