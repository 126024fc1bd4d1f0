"""Tars and zips that are damaged: bad images, or an error that names the damage."""

import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.base.errors import DifficultyError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions

Members = list[tuple[str, bytes]]
Contents = dict[str, bytes | str]


def test_changed_content_is_a_bad_image(
    tmp_path: Path,
    images: list[bytes],
    write_zip: Callable[..., str],
    read_samples: Callable[[Dataset], Contents],
    photos: Callable[..., Members],
) -> None:
    location = Path(write_zip(tmp_path / "a.zip", photos(images), zipfile.ZIP_STORED))
    data = location.read_bytes()
    location.write_bytes(data.replace(images[0], images[0][:-1] + b"\x00"))

    found = read_samples(open_dataset(str(location), DatasetOptions()))

    assert "checksum" in str(found["dog/b.png"])


def test_an_archive_that_shrinks_after_the_listing_gives_bad_images(
    pack: Callable[[Members], str],
    images: list[bytes],
    read_samples: Callable[[Dataset], Contents],
    photos: Callable[..., Members],
) -> None:
    location = pack(photos(images))
    dataset = open_dataset(location, DatasetOptions())

    os.truncate(location, 100)

    assert all(isinstance(found, str) for found in read_samples(dataset).values())


@pytest.mark.parametrize("seed", range(2))
def test_damage_anywhere_is_a_named_error_or_bad_images(
    pack: Callable[[Members], str],
    images: list[bytes],
    seed: int,
    read_samples: Callable[[Dataset], Contents],
    photos: Callable[..., Members],
) -> None:
    location = Path(pack(photos(images)))
    whole = location.read_bytes()
    chance = random.Random(seed)  # noqa: S311
    outcomes = set()

    for _ in range(60):
        end = chance.randrange(1, len(whole)) if chance.random() < 0.3 else len(whole)
        data = bytearray(whole[:end])
        for _ in range(chance.randrange(1, 20)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        location.write_bytes(data)
        try:
            outcomes.update(
                map(type, read_samples(open_dataset(str(location), DatasetOptions())).values())
            )
        except DifficultyError:
            outcomes.add(DifficultyError)

    assert DifficultyError in outcomes
