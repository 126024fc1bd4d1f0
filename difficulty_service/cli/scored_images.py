"""How commands find the images of a score file."""

from typing import TYPE_CHECKING

from difficulty_service.base.errors import DifficultyError
from difficulty_service.cli.console import print_warnings
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.settings.options import ImagesOption

if TYPE_CHECKING:
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.pages.stored_images import ImageSource
    from difficulty_service.scores.file import ScoreFile


def reading_of(images: ImagesOption) -> "DatasetOptions":
    """How the dataset with the images is read."""
    from difficulty_service.datasets.sample import DatasetOptions

    return DatasetOptions(**images.model_dump(exclude={"images"}))


def find_images(scores: "ScoreFile", images: ImagesOption) -> "ImageSource":
    """Opens the dataset of a score file and prints the warnings about it."""
    from difficulty_service.pages.stored_images import open_images

    ids = scores.table["sample_id"].to_pylist()
    source = open_images(scores.provenance, ids, images.images, reading_of(images))
    print_warnings(source.warnings)
    return source


def find_images_or_warn(scores: "ScoreFile", images: ImagesOption) -> "ImageSource | None":
    """As `find_images`, but only warns where the dataset that the score file names is gone."""
    try:
        return find_images(scores, images)
    except DifficultyError as error:
        if images.images is not None:
            raise
        print_warnings([f"no images are written: {error.message(as_option)}; or name --images"])
        return None
