"""Tars and zips that are damaged: bad images, or an error that names the damage."""

import os
import random
import zipfile
from pathlib import Path

import pytest

from difficulty_service.base.errors import DifficultyError
from tests.dataset_files import IMAGES, Pack, dataset_of, photos, read_samples, write_zip


def test_changed_content_is_a_bad_image(tmp_path: Path) -> None:
    location = Path(write_zip(tmp_path / "a.zip", photos(), zipfile.ZIP_STORED))
    data = location.read_bytes()
    location.write_bytes(data.replace(IMAGES[0], IMAGES[0][:-1] + b"\x00"))

    found = read_samples(dataset_of(location))

    assert "checksum" in str(found["dog/b.png"])


def test_an_archive_that_shrinks_after_the_listing_gives_bad_images(pack: Pack) -> None:
    location = pack(photos())
    dataset = dataset_of(location)

    os.truncate(location, 100)

    assert all(isinstance(found, str) for found in read_samples(dataset).values())


@pytest.mark.parametrize("seed", range(2))
def test_damage_anywhere_is_a_named_error_or_bad_images(pack: Pack, seed: int) -> None:
    location = Path(pack(photos()))
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
            outcomes.update(map(type, read_samples(dataset_of(location)).values()))
        except DifficultyError:
            outcomes.add(DifficultyError)

    assert DifficultyError in outcomes
