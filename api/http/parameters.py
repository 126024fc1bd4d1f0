"""What the texts of a request stand for: whole numbers, and the cursors of pages."""

import base64
import binascii
import hashlib
import json
import struct
from typing import Any


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


def write_cursor(layout: str, *values: object) -> str:
    """The cursor of the next page: what tells the last row of a page, as `struct` packs it."""
    return base64.urlsafe_b64encode(struct.pack(layout, *values)).decode().rstrip("=")


def read_cursor(layout: str, text: str) -> tuple[Any, ...] | None:
    """The values of a cursor; None for a text that is none."""
    try:
        return struct.unpack(layout, base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, struct.error, ValueError):
        return None


def identity_of(conditions: object) -> bytes:
    """Eight bytes that tell the cursors of some conditions from those of others."""
    return hashlib.sha256(json.dumps(conditions).encode()).digest()[:8]
