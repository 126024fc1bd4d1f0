"""Small text files beside the images of a published dataset."""

from difficulty_service.datasets.storage import StoredPath, open_file


def read_lines(place: StoredPath) -> list[str] | None:
    """The lines of a text file without those that are empty; None if it cannot be read."""
    try:
        with open_file(place) as file:
            text = file.read().decode("utf-8", "backslashreplace")
    except (OSError, ValueError):
        return None
    return [line.strip() for line in text.splitlines() if line.strip()]
