"""JPEGs that a GPU decodes have the features of those that the CPU decodes, up to rounding."""

import pytest

from tests.pretend.budget import require_within
from tests.pretend.conftest import Call

PATHS = "tests.pretend.jpeg_paths"

ROUNDING = 0.03
"""A GPU resizes numbers with a fraction where the CPU resizes bytes."""

BY_LIBRARY = pytest.mark.parametrize("library", ["torchcodec", "torchvision"])


@pytest.mark.long
@BY_LIBRARY
def test_jpegs_that_the_gpu_decodes_keep_to_their_budget(library: str, on_gpus: Call) -> None:
    counted = on_gpus(f"{PATHS}:extract_jpegs", library)

    assert counted["apart"] < ROUNDING
    assert counted["same look"]
    require_within("extraction", "JPEGs by the GPU", counted)


def test_random_views_of_jpegs_that_the_gpu_decodes_are_those_of_the_cpu(on_gpus: Call) -> None:
    counted = on_gpus(f"{PATHS}:extract_jpegs", "torchcodec", 3)

    assert counted["apart"] < ROUNDING


@BY_LIBRARY
@pytest.mark.parametrize("most_pixels", [None, 1, 10_000])
def test_the_gpu_decodes_what_it_shows_as_the_cpu_does_and_the_cpu_all_else(
    library: str,
    most_pixels: int | None,
    on_gpus: Call,
) -> None:
    found = on_gpus(f"{PATHS}:extract_all_kinds", library, most_pixels)

    oriented = [f"orientation {number}" for number in range(1, 9)]
    assert found["decoded"] == ["plain", "grey", "elongated", "zeros after its end", *oriented]
    assert sorted(found["bad"]) == ["cut short", "elongated", "no image"]
    assert found["apart"] < ROUNDING
    assert found["same look"]


def test_an_image_for_which_the_gpu_has_no_memory_is_left_to_the_cpu(on_gpus: Call) -> None:
    found = on_gpus(f"{PATHS}:without_memory")

    assert found["refused"] == 4
    assert found["apart"] == 0
    assert found["same look"]
