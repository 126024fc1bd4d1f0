"""What a search for missing boxes tells in numbers."""

from typing import Literal

from difficulty_service.base.contract import Found


class MissingResult(Found):
    """What `difficulty missing --json` prints."""

    version: Literal[1] = 1
    """Version of this object: another number where a name goes or changes its meaning."""

    scores: str
    """The boxes that were scored."""

    images: int
    """Images that were searched."""

    images_of_dataset: int
    """Images of the dataset."""

    windows: int
    """Windows beside all boxes that were compared."""

    regions: int
    """Regions that are listed."""

    warnings: tuple[str, ...]
    """What to know of the regions, in sentences."""
