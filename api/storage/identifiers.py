"""Names that the service gives to jobs, uploads and keys."""

import re
import secrets
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # 32 letters in ASCII's order, none easy to mistake
TIME_LETTERS = 10
RANDOM_LETTERS = 16
WELL_FORMED = re.compile(f"[{ALPHABET}]{{{TIME_LETTERS + RANDOM_LETTERS}}}")


def new_id() -> str:
    """A name of 26 letters: milliseconds first, so that names sort by age, then 80 bits."""
    return _letters(time.time_ns() // 1_000_000, TIME_LETTERS) + _letters(
        secrets.randbits(5 * RANDOM_LETTERS), RANDOM_LETTERS
    )


def is_id(text: str) -> bool:
    """Whether `new_id` may have made it; what did not come from there need not be looked up.

    PostgreSQL refuses a text with a NUL or half a surrogate pair as an error, not as unknown.
    """
    return WELL_FORMED.fullmatch(text) is not None


def _letters(number: int, length: int) -> str:
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(length)))
