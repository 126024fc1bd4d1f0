"""A few images, and their features as a job extracts them."""

from pathlib import Path

import pytest

from difficulty_service.extraction.plan import Plan
from difficulty_service.scoring.pipeline import ExtractedDataset, execute
from tests.factories import write_image_folder


@pytest.fixture(scope="package")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images in two class folders."""
    folder = tmp_path_factory.mktemp("photos")
    return write_image_folder(folder, ("ant", "bee"), each=3, size=(40, 50))


@pytest.fixture(scope="package")
def extracted(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> ExtractedDataset:
    """The features of these images from the built-in backbone."""
    out = tmp_path_factory.mktemp("features")
    return execute(Plan(str(photos), out, "builtin"))
