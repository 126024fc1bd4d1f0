"""Whoever names no backbone gets the best one that can be had."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from difficulty_service.backbones import BACKBONES, DEFAULT_BACKBONE
from difficulty_service.datasets.sample import Dataset
from difficulty_service.extraction.default_backbone import (
    ChosenBackbone,
    default_backbone,
    default_of_later_images,
)
from difficulty_service.features.description import ImageSizes
from tests.dataset_files import dataset_of
from tests.factories import png_of, write_hub_file

REPOSITORY = str(BACKBONES[DEFAULT_BACKBONE].repository)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, empty, on a machine without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


def pictures_of(folder: Path, sizes: Sequence[tuple[int, int] | None]) -> Dataset:
    """PNGs of these widths and heights in one class; None for a file that is no image."""
    (folder / "photos" / "class").mkdir(parents=True)
    for number, size in enumerate(sizes):
        content = b"no image" if size is None else png_of((9, 9, 9), size)
        (folder / "photos" / "class" / f"{number:03}.png").write_bytes(content)
    return dataset_of(folder / "photos")


def test_without_network_and_cache_photographs_get_the_encoder_of_the_package(
    tmp_path: Path,
) -> None:
    chosen = default_backbone(pictures_of(tmp_path, [(90, 64), (64, 70), (200, 300)]))

    assert chosen.name == "builtin-photos"
    assert chosen.sizes == ImageSizes(num_images=3, median_side=64)
    (warning,) = chosen.warnings
    assert f"the weights of {DEFAULT_BACKBONE} are missing" in warning
    assert "using the bundled builtin-photos instead of" in warning
    assert "at least 64 pixels: the median shorter side of 3 images is 64" in warning


def test_small_images_get_the_small_network_of_the_package(tmp_path: Path) -> None:
    chosen = default_backbone(pictures_of(tmp_path, [(90, 63)] * 30 + [(200, 200)] * 19))

    assert chosen.name == "builtin"
    assert chosen.sizes == ImageSizes(num_images=32, median_side=63)
    assert "images of less than 64 pixels" in chosen.warnings[0]


def test_images_that_cannot_be_read_choose_nothing(tmp_path: Path) -> None:
    readable = default_backbone(pictures_of(tmp_path / "some", [None, (80, 80), None]))
    unreadable = default_backbone(pictures_of(tmp_path / "none", [None, None]))

    assert (readable.name, readable.sizes) == (
        "builtin-photos",
        ImageSizes(num_images=1, median_side=80),
    )
    assert (unreadable.name, unreadable.sizes) == ("builtin", None)
    assert "none of the images that were looked at could be read" in unreadable.warnings[0]


def test_with_cached_weights_it_is_clip_without_a_word(cache: Path, tmp_path: Path) -> None:
    write_hub_file(cache, REPOSITORY, "open_clip_model.safetensors")

    chosen = default_backbone(pictures_of(tmp_path / "data", [(80, 80)]))

    assert chosen == ChosenBackbone(DEFAULT_BACKBONE)


def test_of_images_that_nobody_has_seen_it_is_the_one_for_photographs_or_clip(cache: Path) -> None:
    offline = default_of_later_images()
    write_hub_file(cache, REPOSITORY, "open_clip_model.safetensors")

    assert offline.name == "builtin-photos"
    (warning,) = offline.warnings
    assert f"the weights of {DEFAULT_BACKBONE} are missing" in warning
    assert "using the bundled builtin-photos instead of" in warning
    assert default_of_later_images() == ChosenBackbone(DEFAULT_BACKBONE)
