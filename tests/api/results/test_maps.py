"""Which images of a map lie in an area."""

import numpy as np
import pytest

from api.results.maps import GRID, Area
from api.results.score_pages import BadQuery
from difficulty_service.review.map import ImageMap

STAR = "6000_6000_32000_64000_60000_6000_3000_42000_64000_40000"


def naive_inside(x: int, y: int, corners: list[tuple[int, int]]) -> bool:
    """Counts the sides that a ray to the right crosses, with exact fractions in floats."""
    crossed = 0
    for (x1, y1), (x2, y2) in zip(corners, [*corners[1:], corners[0]], strict=True):
        if (y1 > y) != (y2 > y):
            crossed += x < x1 + (y - y1) * (x2 - x1) / (y2 - y1)
    return crossed % 2 == 1


@pytest.fixture
def drawn() -> ImageMap:
    """Five hundred random points, whose rows are not in order."""
    generator = np.random.default_rng(0)
    return ImageMap(generator.permutation(1000)[:500], generator.random((500, 2)), "random", 1000)


@pytest.mark.parametrize("text", [STAR, "1_0_65535_0_30000_59999", "-9000_-9000_70000_0_0_70000"])
def test_the_images_are_those_that_a_plain_count_finds(drawn: ImageMap, text: str) -> None:
    numbers = [int(part) for part in text.split("_")]
    corners = list(zip(numbers[::2], numbers[1::2], strict=True))
    points = (drawn.positions * GRID).round().astype(int).tolist()
    expected = [
        row
        for row, (x, y) in zip(drawn.rows.tolist(), points, strict=True)
        if naive_inside(x, y, corners)
    ]

    assert Area.parse(text).rows(drawn).tolist() == sorted(expected)
    assert 0 < len(expected) < 500


def test_an_area_around_everything_has_the_points_at_the_edges(drawn: ImageMap) -> None:
    edges = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    map_of_edges = ImageMap(np.arange(4), edges, "edges", 4)

    everything = Area.parse("-9_-9_65600_-9_65600_65600_-9_65600")

    assert len(everything.rows(drawn)) == 500
    assert everything.rows(map_of_edges).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "1_2_3_4",
        "1_2_3_4_5",
        "a_b_c_d_e_f",
        "1__2_3_4_5_6",
        "1_2_3_4_5_999999",
        "_".join(["1"] * 130),
    ],
)
def test_a_text_that_is_no_area_is_refused(text: str) -> None:
    with pytest.raises(BadQuery, match="no area of the map"):
        Area.parse(text)
