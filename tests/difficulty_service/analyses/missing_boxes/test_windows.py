"""Windows over an image: their sizes, where they are, and which lie beside all boxes."""

import numpy as np
import pytest

from difficulty_service.analyses.missing_boxes.windows import (
    BESIDE,
    STEP,
    lies_beside,
    slide,
    window_sides,
)


def test_boxes_of_nearly_one_size_have_windows_of_one_size() -> None:
    longer = np.linspace(45, 85, 100)

    (side,) = window_sides(longer)

    assert 45 < side < 85


def test_each_doubling_of_the_boxes_has_windows_of_its_own() -> None:
    longer = np.geomspace(20, 400, 1000)

    sides = window_sides(longer)

    assert len(sides) == 4
    assert (np.diff(np.log2(sides)) <= 1.05).all()
    assert np.quantile(longer, 0.1) < sides[0] < sides[-1] < np.quantile(longer, 0.9)


def test_windows_cover_the_image_and_overlap_by_half_or_more() -> None:
    windows = slide(100, 50, np.array([20.0]))

    covered = np.zeros((50, 100), np.bool_)
    for left, top, right, bottom in windows.round().astype(int).tolist():
        covered[top:bottom, left:right] = True
    assert covered.all()
    assert (windows[:, 2:] - windows[:, :2] == 20).all()
    for axis in (0, 1):
        assert (np.diff(np.unique(windows[:, axis])) <= STEP * 20 + 1).all()


def test_windows_are_not_larger_than_the_image() -> None:
    assert len(slide(100, 50, np.array([60.0]))) == 0
    assert len(slide(50, 50, np.array([50.0]))) == 1


@pytest.mark.parametrize("seed", range(3))
def test_what_lies_beside_boxes_is_what_a_naive_count_of_pixels_says(seed: int) -> None:
    random = np.random.default_rng(seed)
    corners = random.integers(0, 40, (2, 30, 2))
    sides = random.integers(1, 15, (2, 30, 2))
    windows, boxes = (
        np.concatenate([each, each + side], axis=1).astype(np.float64)
        for each, side in zip(corners, sides, strict=True)
    )

    def pixels(box: list[float]) -> set[tuple[int, int]]:
        left, top, right, bottom = map(int, box)
        return {(x, y) for x in range(left, right) for y in range(top, bottom)}

    naive = [
        all(
            len(pixels(window) & pixels(box)) <= BESIDE * min(len(pixels(window)), len(pixels(box)))
            for box in boxes.tolist()
        )
        for window in windows.tolist()
    ]
    assert lies_beside(windows, boxes).tolist() == naive
    assert lies_beside(windows, np.empty((0, 4))).all()
