"""Ids of jobs, uploads and keys."""

import re
import secrets
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # 32 letters in ASCII order, none easily mistaken
TIME_LETTERS = 10
RANDOM_LETTERS = 16
WELL_FORMED = re.compile(f"[{ALPHABET}]{{{TIME_LETTERS + RANDOM_LETTERS}}}")


def new_id() -> str:
    """An id of 26 letters: the time in milliseconds, by which ids sort, then 80 random bits."""
    return _letters(time.time_ns() // 1_000_000, TIME_LETTERS) + _letters(
        secrets.randbits(5 * RANDOM_LETTERS), RANDOM_LETTERS
    )


def id_of(digest: bytes) -> str:
    """The id that stands for a digest, always the same."""
    return _letters(int.from_bytes(digest), TIME_LETTERS + RANDOM_LETTERS)


def is_id(text: str) -> bool:
    """Whether a text has the form of an id; no other text is looked up in the database.

    PostgreSQL fails on a text with a NUL or half a surrogate pair, rather than not finding it.
    """
    return WELL_FORMED.fullmatch(text) is not None


def _letters(number: int, length: int) -> str:
    return "".join(ALPHABET[number >> 5 * digit & 31] for digit in reversed(range(length)))
