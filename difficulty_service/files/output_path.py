"""Checks where a command is about to write, before it computes for hours."""

from collections.abc import Collection
from pathlib import Path

from difficulty_service.errors import DifficultyError, Setting


def require_output_file(path: Path, endings: Collection[str], error: type[DifficultyError]) -> None:
    """Raises where a path cannot become a file of one of the formats.

    Args:
        path: File to write.
        endings: Endings that the name may have, in lower case; "" for none.
        error: Class of the error.

    Raises:
        error: The name has another ending, the path is a folder, or a file is in the place of a
            folder above it.
    """
    known = ", ".join(filter(None, endings))
    if path.is_dir():
        example = path / f"NAME{next(iter(endings))}"
        raise error(
            f"{path} is a folder",
            "name a file in it: ",
            Setting("out", str(example)),
            parameter="out",
        )
    if path.suffix.lower() not in endings:
        problem = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        example = path.with_suffix(next(iter(endings)))
        raise error(
            f"the name {path.name!r} {problem}, expected is {known}",
            "use ",
            Setting("out", str(example)),
            parameter="out",
        )
    above = next((folder for folder in path.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise error(
            f"{above} is a file, so {path} cannot be written in it",
            "use another ",
            Setting("out"),
            parameter="out",
        )
