"""What a search for missing boxes tells in numbers."""

from difficulty_service.base.contract import Printed


class MissingResult(Printed):
    """What `difficulty missing --json` prints."""

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
