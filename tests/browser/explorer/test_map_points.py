"""The map asks for its points at an address of their own, and draws them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

Explorer = Any  # of conftest.py, which tests cannot import


def test_the_colours_of_the_map_are_chosen(map_page: "Page") -> None:
    map_page.get_by_label("doubtful labels").check()

    assert map_page.locator("#map-key").inner_text().splitlines() == [
        "another class fits better",
        "own class fits best",
    ]


def test_the_map_is_asked_for_once_more_only_to_hear_that_it_has_not_changed(
    map_page: "Page",
) -> None:
    with map_page.expect_response("**/map/points") as answer:
        map_page.reload()
        map_page.locator("#map-box").wait_for()

    size = answer.value.request.sizes()["responseBodySize"]
    assert size == 0
    assert len(map_page.content()) < 12_000


def test_points_that_cannot_be_fetched_are_explained(
    page: "Page", explorer: Explorer, problems: list[str]
) -> None:
    page.route("**/map/points", lambda route: route.abort())
    page.goto(f"/jobs/{explorer.job}/map")

    page.get_by_text("The points of the map cannot be fetched.").wait_for()

    assert not page.locator("#map-box").is_visible()
    problems.clear()
