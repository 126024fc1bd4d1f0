"""Boxes of objects are reviewed in the service by keyboard, with the mark that only they have."""

from collections.abc import Iterator

import pytest

from tests.boxed_images import many_scenes, write_coco
from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page


@pytest.fixture(scope="module")
def boxes_job(explorer: Explorer) -> str:
    """Id of a finished job about 36 boxes of a COCO dataset."""
    write_coco(explorer.folder / "fruit", many_scenes(12))
    return str(explorer.score("fruit"))


@pytest.fixture
def unmarked(explorer: Explorer, boxes_job: str) -> Iterator[str]:
    """The job, whose marks are removed afterwards."""
    yield boxes_job
    with explorer.client() as client:
        address = f"/v1/jobs/{boxes_job}/marks"
        marks = client.get(f"{address}?limit=1000").json()["marks"]
        changes = [{"row": mark["row"], "decision": None} for mark in marks]
        if changes:
            client.post(address, json={"marks": changes}).raise_for_status()


def decisions_of(explorer: Explorer, job: str) -> dict[int, str]:
    with explorer.client() as client:
        marks = client.get(f"/v1/jobs/{job}/marks?limit=1000").json()["marks"]
    return {mark["row"]: mark["mark"] for mark in marks}


def test_boxes_are_marked_and_found_again_by_keyboard(
    page: Page, explorer: Explorer, unmarked: str
) -> None:
    page.goto(f"/jobs/{unmarked}/images?sort=file")
    page.locator(".look").first.focus()

    for key in "k2dbb":
        page.keyboard.press(key)
    page.get_by_text("5 checked: 1 keep, 1 relabel, 1 drop, 2 misplaced.").first.wait_for()
    page.keyboard.press("u")
    page.get_by_text("4 checked: 1 keep, 1 relabel, 1 drop, 1 misplaced.").first.wait_for()
    stamps = page.locator(".stamp").all_inner_texts()[:5]
    hint = page.locator(".keys-hint").inner_text()
    page.locator("#mark").select_option("misplaced")
    page.locator(".results-head b").get_by_text("1", exact=True).wait_for()

    marks = ["keep", "relabel", "drop", "misplaced"]
    assert decisions_of(explorer, unmarked) == dict(enumerate(marks))
    assert (stamps[0], *stamps[2:]) == ("keep", "drop", "misplaced", "")
    assert "B misplaced" in hint
    assert page.locator(".card").get_attribute("data-row") == "3"


def test_the_page_of_one_box_says_that_it_is_off_and_goes_on(
    page: Page, explorer: Explorer, unmarked: str
) -> None:
    page.goto(f"/jobs/{unmarked}/images/0?sort=file")
    page.locator("#decisions .undo:visible").wait_for()  # scripts have run

    page.keyboard.press("b")
    page.wait_for_url("**/images/1?*")
    page.get_by_role("button", name="Misplaced").click()
    page.wait_for_url("**/images/2?*")
    page.goto(f"/jobs/{unmarked}/images/0?sort=file")

    misplaced = page.get_by_role("button", name="Misplaced")
    assert misplaced.get_attribute("aria-pressed") == "true"
    assert decisions_of(explorer, unmarked) == {0: "misplaced", 1: "misplaced"}


def test_several_boxes_are_off_at_once(page: Page, explorer: Explorer, unmarked: str) -> None:
    page.goto(f"/jobs/{unmarked}/images?sort=file&q=scene003")
    page.get_by_text("Mark all 3 filtered").click()

    page.get_by_role("button", name="Misplaced 3").click()
    page.get_by_text("3 checked: 0 keep, 0 relabel, 0 drop, 3 misplaced.").first.wait_for()

    assert {*decisions_of(explorer, unmarked).values()} == {"misplaced"}


def test_images_that_are_no_boxes_cannot_be_misplaced(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}/images?margin=0")
    with explorer.client() as client:
        body = {"marks": [{"row": 0, "decision": {"mark": "misplaced"}}]}
        refused = client.post(f"/v1/jobs/{explorer.job}/marks", json=body)

    assert refused.status_code == 422
    assert "only boxes of objects can be marked misplaced" in refused.json()["detail"]
    assert page.locator("[data-decision=misplaced], [value=misplaced]").count() == 0
    assert "B misplaced" not in page.locator(".keys-hint").inner_text()
