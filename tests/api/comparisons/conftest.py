"""A service with two finished jobs that have some photographs in common."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.factories import write_image_folder
from tests.service import ServiceClient, client_of, finished_job
from tests.small_network import SMALL

CLASSES = ("bird", "cat", "dog")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train` has 24 images; of `test` two are copies, one of them with another label."""
    folder = tmp_path_factory.mktemp("photos")
    write_image_folder(folder / "train", CLASSES, 8, size=(16, 16))
    random = np.random.default_rng(3)
    for number, name in enumerate(CLASSES):
        (folder / "test" / name).mkdir(parents=True)
        for each in range(3):
            pixels = random.integers(0, 256, (16, 16, 3), np.uint8)
            Image.fromarray(pixels // (number + 1)).save(folder / "test" / name / f"n{each}.png")
    shutil.copy(folder / "train" / "cat" / "1.png", folder / "test" / "cat" / "copy.png")
    shutil.copy(folder / "train" / "dog" / "2.png", folder / "test" / "bird" / "wrong.png")
    return folder


@pytest.fixture(scope="module")
def client(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    data = tmp_path_factory.mktemp("service")
    roots = {"photos": str(photos)}
    with client_of(data, roots=roots, default_backbone=SMALL) as client:
        yield client


@pytest.fixture(scope="module")
def jobs(client: ServiceClient) -> tuple[str, str]:
    """The training set and the test set, scored."""
    train, test = (
        finished_job(client, dataset={"root": "photos", "path": path}) for path in ("train", "test")
    )
    return train.id, test.id
