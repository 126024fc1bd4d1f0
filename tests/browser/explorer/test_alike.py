"""Images like one are a list to mark, reached from the page of one image or by a key."""

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page

pytestmark = pytest.mark.usefixtures("no_marks")


def test_images_like_one_are_selected_and_marked_together(page: Page, explorer: Explorer) -> None:
    address = f"/jobs/{explorer.job}/images"
    page.goto(f"{address}/3")
    strip = page.locator("#similar a").evaluate_all("all => all.map(each => each.pathname)")

    page.get_by_role("link", name="More like this").click()
    cards = page.locator("#grid > .card .look")
    listed = cards.evaluate_all("all => all.map(each => each.pathname)")
    cards.first.focus()
    page.keyboard.press("Control+a")
    page.keyboard.press("d")
    page.wait_for_selector(f"#tray-text:has-text('{len(listed)} drop')")
    cards.nth(1).focus()
    page.keyboard.press("l")
    page.wait_for_url(f"**{address}?like={strip[0].rpartition('/')[2]}")

    assert listed[0] == f"{address}/3"
    assert listed[1:13] == strip
    first = page.locator("#grid > .card .look").first
    assert first.evaluate("each => each.pathname") == strip[0]


def test_a_list_of_images_like_one_becomes_a_list_of_all_again(
    page: Page, explorer: Explorer
) -> None:
    page.goto(f"/jobs/{explorer.job}/images?like=3")

    link = page.locator(".results-head a[href$='/images/3']")
    link.wait_for()
    page.get_by_role("checkbox", name="Like one image").uncheck()
    link.wait_for(state="detached")

    assert page.locator(".problem").count() == 0
    assert page.locator("#grid > .card").count() == 60
