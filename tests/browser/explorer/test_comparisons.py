"""Finished jobs are compared on a page, in a real browser and by keyboard."""

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings

COMPARED_WITHIN = 300_000  # milliseconds, for a process that loads PyTorch on a busy machine


@pytest.fixture
def twin(explorer: Explorer) -> str:
    """A second job about the same images."""
    return str(explorer.score("train"))


@pytest.mark.long
@pytest.mark.parametrize("look", ["light", "dark"])
def test_copies_are_asked_for_by_keyboard_and_shown_side_by_side(
    signed_in_page: OpenPage, explorer: Explorer, twin: str, problems: list[str], look: str
) -> None:
    page = signed_in_page(color_scheme=look, viewport={"width": 390, "height": 800})
    page.goto(f"/jobs/{explorer.job}")
    page.get_by_role("link", name="More", exact=True).first.click()
    page.get_by_role("link", name="Compare", exact=True).click()
    assert axe_findings(page) == []

    page.get_by_label("Jobs with the test sets").select_option(twin)
    page.locator("#leaks-near_duplicates").fill("0.99999")
    page.keyboard.press("Enter")
    page.locator(".copies li").first.wait_for(timeout=COMPARED_WITHIN)
    page.wait_for_load_state()  # the list may have been read in part

    assert "120 of 120 images" in page.locator("main").inner_text()
    assert page.locator(".copies > li .thumb").count() == 2 * 120
    assert page.locator(".copies img").first.evaluate("each => each.decode().then(() => true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert axe_findings(page) == []

    page.get_by_role("link", name="Compare", exact=True).last.click()
    page.get_by_role("button", name="Remove Copies in other jobs 1").click()
    page.get_by_role("button", name="Remove Copies in other jobs 1").wait_for(state="detached")
    assert problems == []
