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


def find_images(scores: "ScoreFile", options: ImageOptions) -> "ImageSource":
    """Opens the dataset of a score file and prints the warnings about it.

    Raises:
        DifficultyError: The dataset cannot be read, or has none of the samples.
    """
    from difficulty_service.cleaning.stored_images import open_images

    ids = scores.table["sample_id"].to_pylist()
    source = open_images(scores.provenance, ids, options.location, options.reading)
    print_warnings(source.warnings)
    return source


def find_images_or_warn(scores: "ScoreFile", options: ImageOptions) -> "ImageSource | None":
    """As `find_images`, but only warns where the dataset that the score file names is gone.

    Raises:
        DifficultyError: The dataset at the given location cannot be read.
    """
    try:
        return find_images(scores, options)
    except DifficultyError as error:
        if options.location is not None:
            raise
        print_warnings([f"no images are written: {error.message(as_option)}; or name --images"])
        return None
