"""Lists of classes in sentences, by name."""

from collections.abc import Sequence

SHOWN = 5
"""Number of names in a sentence, after which the others are counted."""


def list_names(names: Sequence[str]) -> str:
    """The first names with commas between, and how many more there are."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun, such as `1 image` or `2,000 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
