"""The map asks for its points at an address of their own, and draws them."""

import re

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page


def test_the_colours_of_the_map_are_chosen(map_page: Page) -> None:
    map_page.get_by_label("doubtful labels").check()

    assert map_page.locator("#map-key").inner_text().splitlines() == [
        "between two classes",
        "fits",
    ]


def test_the_map_is_asked_for_once_more_only_to_hear_that_it_has_not_changed(
    page: Page, explorer: Explorer
) -> None:
    with explorer.client() as client:
        while client.get(f"/jobs/{explorer.job}/map/tsne").status_code == 202:
            page.wait_for_timeout(200)
    page.goto(f"/jobs/{explorer.job}/map")
    page.locator("#map-box").wait_for()
    with page.expect_response(re.compile(r"/map/(points|tsne)$")) as answer:
        page.reload()
        page.locator("#map-box").wait_for()

    size = answer.value.request.sizes()["responseBodySize"]
    assert size == 0
    assert len(page.content()) < 14_000


def test_points_that_cannot_be_fetched_are_explained(
    page: Page, explorer: Explorer, problems: list[str]
) -> None:
    page.route("**/map/tsne", lambda route: route.fulfill(status=202, json={"share": 0.0}))
    page.route("**/map/points", lambda route: route.abort())
    page.goto(f"/jobs/{explorer.job}/map")

    page.get_by_text("The points of the map cannot be fetched.").wait_for()

    assert not page.locator("#map-box").is_visible()
    problems.clear()
