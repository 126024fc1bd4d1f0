"""The options by which commands find the images of a score file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import print_warnings
from difficulty_service.commands.options import as_option
from difficulty_service.errors import DifficultyError

if TYPE_CHECKING:
    from difficulty_service.cleaning.stored_images import ImageSource
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.score_file import ScoreFile

Scores = Annotated[Path, typer.Argument(help="Score file.")]
ImagesLocation = Annotated[
    str | None,
    typer.Option(
        "--images",
        metavar="DATASET",
        help="The dataset that was scored; default: the one that the score file names.",
    ),
]


@dataclass(frozen=True)
class ImageOptions:
    """Where the images of a score file are.

    Attributes:
        location: Location of the dataset; None for the one that the score file names.
        reading: Options for reading it.
    """

    location: str | None
    reading: "DatasetOptions"


def find_images(
    scores: "ScoreFile", options: ImageOptions, *, required: bool
) -> "ImageSource | None":
    """Opens the dataset of a score file and prints the warnings about it.

    Args:
        scores: The score file.
        options: Where the images are.
        required: Whether to raise where the dataset cannot be read; otherwise that is a warning
            unless a location was given.

    Raises:
        DifficultyError: The dataset cannot be read.
    """
    from difficulty_service.cleaning.stored_images import open_images

    ids = scores.table["sample_id"].to_pylist()
    try:
        source = open_images(scores.provenance, ids, options.location, options.reading)
    except DifficultyError as error:
        if required or options.location is not None:
            raise
        print_warnings([f"no images are written: {error.message(as_option)}; or name --images"])
        return None
    print_warnings(source.warnings)
    return source
