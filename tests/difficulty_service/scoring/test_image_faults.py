"""Faults of images, from the numbers of how they look."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.images.appearance import NUMBERS, measure, sample_pixels, to_struct
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.image_faults import (
    FAULTS,
    clearest_faults,
    find_image_faults,
    find_limits,
)
from difficulty_service.scoring.marked_features import ChangedFeatures
from difficulty_service.scoring.store import RMD_ONLY, score_in_memory
from tests.factories import store_of

Pixels = NDArray[np.uint8]


def scene(seed: int) -> Pixels:
    """Patches with sharp edges, from dark to bright."""
    generator = np.random.default_rng(seed)
    pixels = np.full((64, 80, 3), 110, np.uint8)
    for shade in np.linspace(10, 245, 40):
        top, left = generator.integers(0, (60, 76))
        pixels[top : top + 16, left : left + 16] = np.uint8(shade)
    return pixels


def cut_off(pixels: Pixels) -> Pixels:
    pixels = pixels.copy()
    pixels[50:] = 128
    return pixels


PLANTED = {
    "one colour": lambda pixels: np.full_like(pixels, 90),
    "cut off": cut_off,
    "dark": lambda pixels: pixels // 5,
    "overexposed": lambda pixels: np.maximum(pixels, 215),
    "low contrast": lambda pixels: 100 + pixels // 6,
    "blurred": lambda pixels: np.asarray(
        Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(3))
    ),
    "small": lambda pixels: np.asarray(Image.fromarray(pixels).resize((18, 14))),
    "elongated": lambda pixels: pixels[:20],
}


def numbers_of(images: list[Pixels]) -> NDArray[np.float32]:
    return measure([sample_pixels(image) for image in images])


def faults_of(images: list[Pixels]) -> list[str | None]:
    numbers = numbers_of(images)
    codes = clearest_faults(numbers, find_limits(numbers))
    return [None if code == 0 else FAULTS[code - 1].name for code in codes]


def write(folder: Path, images: list[Pixels], runs: int = 1) -> FeatureStore:
    """A store of two shards, of which the second has no numbers."""
    half = len(images) // 2
    features = torch.randn(len(images), runs, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(len(images)) % 3
    store = store_of(folder, features, labels, shard_size=half)
    table = store.read_shard(0)
    numbers = numbers_of(images[:half]).repeat(runs, axis=0)
    store.write_shard(0, replace(table, appearance=to_struct(numbers)), [])
    return store


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_no_other_image_has_one(fault: str) -> None:
    images = [scene(seed) for seed in range(30)]
    images[7] = PLANTED[fault](images[7])

    assert faults_of(images) == [fault if place == 7 else None for place in range(30)]


def test_every_fault_is_planted_by_the_test_above() -> None:
    assert [fault.name for fault in FAULTS] == list(PLANTED)


def test_where_most_images_are_dark_only_one_unlike_the_rest_is() -> None:
    darks = [scene(seed) // 5 for seed in range(30)]
    darks[3], darks[4] = scene(3) // 22, scene(4) // 6

    assert faults_of(darks) == ["dark" if place == 3 else None for place in range(30)]


def test_where_all_images_are_soft_only_one_that_is_much_softer_is_blurred() -> None:
    soft = [
        np.asarray(Image.fromarray(scene(seed)).filter(ImageFilter.GaussianBlur(0.9)))
        for seed in range(30)
    ]
    soft[3] = PLANTED["blurred"](scene(3))
    sharpness = numbers_of(soft)[:, NUMBERS.index("sharpness")]

    assert (sharpness < 0.4).sum() > 1  # below the limit for images of usual sharpness
    assert faults_of(soft) == ["blurred" if place == 3 else None for place in range(30)]


def test_an_image_is_small_beside_the_others_and_not_by_its_pixels() -> None:
    images = [scene(seed) for seed in range(9)]

    little = [PLANTED["small"](image) for image in images]

    assert "small" not in faults_of(little)
    assert faults_of([*images, little[0]])[-1] == "small"


def test_what_is_not_known_of_an_image_is_no_fault() -> None:
    numbers = numbers_of([scene(0), scene(1) // 5])
    unknown = np.full_like(numbers, np.nan)

    codes = clearest_faults(np.concatenate([numbers, unknown]), find_limits(numbers))

    assert codes.tolist() == [0, 3, 0, 0]


@pytest.mark.parametrize("runs", [1, 2])
def test_faults_are_a_column_and_counts_of_the_score_file(tmp_path: Path, runs: int) -> None:
    images = [scene(seed) for seed in range(24)]
    images[2], images[5] = images[2] // 5, PLANTED["blurred"](images[5])
    store = write(tmp_path, images, runs)

    scores = score_in_memory(store, fit_store(store, FitOptions()), RMD_ONLY)

    expected = [{2: "dark", 5: "blurred"}.get(place) for place in range(24)]
    assert scores.table["image_fault"].to_pylist() == expected
    assert scores.provenance.image_faults == {"dark": 1, "blurred": 1}


def test_features_of_an_earlier_version_are_scored_without_the_column(tmp_path: Path) -> None:
    labels = torch.arange(24) % 3
    features = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    store = store_of(tmp_path, features, labels)

    scores = score_in_memory(store, fit_store(store, FitOptions()), RMD_ONLY)

    assert find_image_faults(store) is None
    assert "image_fault" not in scores.table.column_names
    assert scores.provenance.image_faults is None


def test_faults_stay_with_their_images_where_others_are_left_out(tmp_path: Path) -> None:
    images = [scene(seed) for seed in range(24)]
    images[2] = images[2] // 5
    store = write(tmp_path, images)
    kept = torch.ones(24, dtype=torch.bool)
    kept[[0, 20]] = False

    found = find_image_faults(ChangedFeatures(store, torch.arange(24) % 3, kept))

    assert found is not None
    assert found.column(0, 22).to_pylist() == [None, "dark", *[None] * 20]
    assert found.column(1, 3).to_pylist() == ["dark", None, None]
