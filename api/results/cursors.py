"""Cursors: where a page of images ends, and of which conditions."""

import base64
import binascii
import hashlib
import json
import struct
from collections.abc import Mapping

import numpy as np

from api.results.score_pages import BadQuery

_CURSOR = struct.Struct(">8sdq")


def write_cursor(conditions: Mapping[str, str], key: float, row: int) -> str:
    """The cursor after an image.

    Args:
        conditions: Conditions that the images of the pages fulfil.
        key: Sort key of the image.
        row: Its row.
    """
    packed = _CURSOR.pack(_identity(conditions), key, row)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_cursor(conditions: Mapping[str, str], text: str) -> tuple[float, int]:
    """Sort key and row of the last image of the page before.

    Raises:
        BadQuery: The text is no cursor, or one of other conditions.
    """
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        identity, key, row = _CURSOR.unpack(packed)
    except (binascii.Error, struct.error, ValueError):
        raise BadQuery("after", "this is not a cursor; begin with the first page") from None
    if identity != _identity(conditions) or np.isnan(key):
        raise BadQuery(
            "after", "this cursor belongs to other conditions; begin with the first page"
        )
    return key, row


def _identity(conditions: Mapping[str, str]) -> bytes:
    """Digest of the conditions, which tells their cursors from those of others."""
    text = json.dumps(sorted(conditions.items()))
    return hashlib.sha256(text.encode(errors="replace")).digest()[:8]
