"""A few images, and their features as a job extracts them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from difficulty_service.pipeline import ExtractedDataset, ExtractRequest, extract


@pytest.fixture(scope="package")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images in two class folders."""
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (folder / name).mkdir()
        for number in range(3):
            pixels = generator.integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="package")
def extracted(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> ExtractedDataset:
    """The features of these images from the built-in backbone."""
    out = tmp_path_factory.mktemp("features")
    return extract(ExtractRequest(str(photos), out, "builtin"))
