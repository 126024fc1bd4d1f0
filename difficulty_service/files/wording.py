"""Numbers and lists in sentences."""

from collections.abc import Sequence

SHOWN = 5
"""Number of names in a sentence, after which the others are counted."""


def list_names(names: Sequence[str], shown: int = SHOWN) -> str:
    """The first names with commas between, and how many more there are."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun, such as `1 image` or `2,000 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def is_or_are(number: int) -> str:
    """The verb of that many things."""
    return "is" if number == 1 else "are"
