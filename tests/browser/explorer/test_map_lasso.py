"""A selection on the map is drawn by several lines, looked at, and listed."""

import re

import numpy as np
import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import DrawAround, OpenMap, OpenPage, Page, Points

pytestmark = pytest.mark.usefixtures("no_marks")


def told(page: Page, text: str) -> None:
    page.locator("#lasso-text").get_by_text(text, exact=True).wait_for()


def listed(page: Page) -> list[int]:
    """Rows of the images that "Show them" leads to."""
    href = page.get_by_role("link", name="Show them").get_attribute("href")
    answer = page.request.get(f"{href}&sort=file")
    rows = re.findall(r'id="image-(\d+)"', answer.text())
    return [int(row) for row in rows]


def test_shift_adds_alt_takes_out_and_each_line_is_undone(
    map_page: Page, draw_around: DrawAround, points: Points
) -> None:
    dogs, birds = (np.flatnonzero(points["labels"] == label).tolist() for label in (2, 0))

    first = set(draw_around(map_page, dogs[:4], "Shift"))
    told(map_page, f"{len(first)} in the lasso")
    second = set(draw_around(map_page, birds[:4], "Shift"))
    told(map_page, f"{len(first | second)} in the lasso")
    removed = set(draw_around(map_page, birds[:2], "Alt"))
    left = (first | second) - removed
    told(map_page, f"{len(left)} in the lasso")
    shown = listed(map_page)
    map_page.get_by_role("button", name="Undo the last line").click()
    told(map_page, f"{len(first | second)} in the lasso")
    again = listed(map_page)
    map_page.get_by_role("button", name="Undo the last line").click()
    map_page.get_by_role("button", name="Undo the last line").click()

    assert removed & (first | second)
    assert shown == sorted(left)[:60]
    assert again == sorted(first | second)[:60]
    assert not map_page.locator("#lasso").is_visible()


def test_with_the_lasso_on_a_line_selects_anew_or_as_it_is_chosen(
    map_page: Page, draw_around: DrawAround
) -> None:
    map_page.get_by_role("button", name="Lasso", exact=True).click()

    draw_around(map_page, [0, 1, 2, 3], None)
    second = draw_around(map_page, [50, 51], None)
    told(map_page, f"{len(second)} in the lasso")
    map_page.get_by_label("adds", exact=True).check()
    third = draw_around(map_page, [80, 81], None)
    told(map_page, f"{len({*second, *third})} in the lasso")
    map_page.get_by_label("takes out", exact=True).check()
    draw_around(map_page, list(range(120)), None)

    told(map_page, "No image is in the lasso.")


def test_at_most_eight_lines_are_drawn(map_page: Page, draw_around: DrawAround) -> None:
    for _ in range(8):
        draw_around(map_page, [0, 1])
    draw_around(map_page, [5, 6])

    map_page.locator("#lasso-text").get_by_text("at most 8 lines").wait_for()
    assert listed(map_page)


def test_the_hardest_of_the_selection_are_pictured(
    map_page: Page, draw_around: DrawAround, points: Points
) -> None:
    draw_around(map_page, list(range(120)))

    map_page.get_by_text("The 24 hardest of them:").wait_for()
    pictures = map_page.locator("#lasso-pictures img")
    levels = points["percentiles"]
    rows = [
        int(src.split("/")[-2]) for src in pictures.evaluate_all("all => all.map((i) => i.src)")
    ]
    assert len(rows) == 24
    assert levels[rows].tolist() == sorted(levels.tolist(), reverse=True)[:24]
    assert set(pictures.evaluate_all("all => all.map((i) => i.loading)")) == {"lazy"}
    pictures.first.scroll_into_view_if_needed()
    map_page.wait_for_function(
        "() => document.querySelector('#lasso-pictures img').naturalWidth === 32"
    )


def test_the_bar_of_marks_covers_no_action_of_the_lasso(
    signed_in_page: OpenPage, open_map: OpenMap, draw_around: DrawAround
) -> None:
    page = open_map(signed_in_page(viewport={"width": 1280, "height": 800}))
    draw_around(page, list(range(120)))
    page.get_by_role("button", name="Keep their labels").click()
    told(page, "120 marked keep.")
    page.wait_for_selector("#tray-text:has-text('120 checked')")

    actions = page.locator("#lasso button:visible, #lasso .link:visible")
    assert actions.count() == 9
    for each in actions.all():
        each.scroll_into_view_if_needed()
        each.click(trial=True, timeout=2000)  # raises where something else would get the click
    canvas, tray = page.locator("#map-canvas"), page.locator(".tray")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    box, bar = canvas.bounding_box(), tray.bounding_box()
    assert box["y"] + box["height"] <= bar["y"]
    page.get_by_role("button", name="Undo", exact=True).click(timeout=2000)
    told(page, "120 as before.")


def test_the_better_map_waits_while_images_are_selected(
    page: Page, explorer: Explorer, draw_around: DrawAround
) -> None:
    pytest.importorskip("openTSNE", reason="the extra `map` is not installed")
    with explorer.client() as client:
        while client.get(f"/jobs/{explorer.job}/map/tsne").status_code == 202:
            page.wait_for_timeout(200)
    is_made = []
    html = page.request.get(f"/jobs/{explorer.job}/map").text().replace('"ready"', '"possible"')
    page.route("**/map", lambda route: route.fulfill(body=html, content_type="text/html"))
    waiting = {"share": 0.0, "failure": None}
    page.route(
        "**/map/tsne",
        lambda route: route.continue_() if is_made else route.fulfill(status=202, json=waiting),
    )
    page.goto(f"/jobs/{explorer.job}/map")
    page.locator("#map-box").wait_for()
    inside = draw_around(page, [0, 1, 2])
    is_made.append(True)

    page.get_by_text("The better map is there").wait_for()
    assert page.get_by_label("two directions", exact=True).is_checked()
    told(page, f"{len(inside)} in the lasso")
    page.get_by_label("t-SNE", exact=True).check()

    page.locator("#lasso").wait_for(state="hidden")
    assert page.locator("#map-status").inner_text() == ""
