"""Which images of a map lie in an area."""

import numpy as np
import pytest

from api.results.maps import LONGEST_AREA, MOST_POLYGONS, Area
from api.results.score_pages import BadQuery
from difficulty_service.reports.map import ImageMap
from difficulty_service.reports.map_points import GRID

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


def test_polygons_add_and_remove_in_their_order(drawn: ImageMap) -> None:
    left, right = "0_0_40000_0_40000_65535_0_65535", "30000_0_65535_0_65535_65535_30000_65535"
    middle = "20000_20000_50000_20000_50000_50000_20000_50000"
    x, y = (drawn.positions * GRID).round().astype(int).T
    in_middle = (x >= 20000) & (x < 50000) & (y >= 20000) & (y < 50000)

    without = Area.parse(f"{left}~{right}~not_{middle}")
    again = Area.parse(f"tsne~not_{left}~{right}~not_{middle}~{middle}")

    assert without.rows(drawn).tolist() == sorted(drawn.rows[~in_middle].tolist())
    assert again.rows(drawn).tolist() == sorted(drawn.rows[(x >= 30000) | in_middle].tolist())
    assert (without.layout, again.layout) == ("plane", "tsne")


def test_an_area_of_the_most_corners_that_a_page_draws_fits_into_an_address() -> None:
    corners = "_".join(["-9999", "75534"] * 40)
    text = "~".join(["tsne", *[f"not_{corners}"] * MOST_POLYGONS])

    assert len(Area.parse(text).polygons) == MOST_POLYGONS
    assert len(text) <= LONGEST_AREA


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tsne",
        "1_2_3_4_5_6~",
        "not_",
        "1_2_3_4_5_6~not_not_1_2_3_4_5_6",
        "~".join(["1_2_3_4_5_6"] * 9),
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
