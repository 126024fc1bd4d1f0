"""Somebody who has never seen the pages does five things by the words on them alone."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from api.settings import Settings
from api.storage.database import open_database
from api.storage.keys import create_key
from tests.browser.explorer.service import Explorer
from tests.browser.kinds import BrowserContext, OpenPage, Page
from tests.browser.reports import axe_findings

NewContext = Callable[..., BrowserContext]

pytestmark = pytest.mark.usefixtures("no_marks")
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


CHECK = re.compile("^(Check|See) .*labels$")
"""Words of the link to the labels to check."""


def sign_in(page: Page, secret: str) -> None:
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()


@pytest.fixture
def stranger(new_context: NewContext) -> Page:
    """A page of a profile that is not signed in."""
    return new_context().new_page()


def test_a_dataset_is_scored(stranger: Page, explorer: Explorer) -> None:
    stranger.goto("/")
    sign_in(stranger, explorer.secret)
    stranger.locator("html.scripts-run").wait_for()

    stranger.get_by_role("button", name="Browse…").click()
    stranger.get_by_role("button", name="train/").click()
    stranger.get_by_role("button", name="Choose train").click()
    stranger.get_by_text("Read as one folder per class: 121 images of 3 classes").wait_for()
    stranger.get_by_label("Name", exact=True).fill("Mine")
    stranger.get_by_role("button", name="Score", exact=True).click()
    stranger.get_by_role("heading", name="Where the scores come from").wait_for()

    assert stranger.get_by_role("link", name="Mine").is_visible()
    stranger.goto("/")
    assert stranger.get_by_role("heading", name="Mine").is_visible()
    with explorer.client() as client:
        client.delete(client.get("/v1/jobs").json()["jobs"][0]["links"]["self"])


def test_the_first_decision_is_two_actions_from_the_link(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}")

    page.get_by_role("link", name=CHECK).click()
    page.locator(".look[tabindex='0']").wait_for()  # the script runs
    page.keyboard.press("k")

    page.get_by_text("1 checked: 1 keep").first.wait_for()


def test_so_is_the_first_one_by_mouse(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}")

    page.locator(".to-check .minis a").first.click()
    page.locator("html.scripts-run").wait_for()
    page.get_by_role("button", name="Keep").click()

    page.get_by_role("link", name="All images").click()
    page.get_by_text("1 checked: 1 keep").first.wait_for()


def test_the_list_shows_a_decision_that_was_still_on_its_way_when_it_was_opened(
    page: Page, explorer: Explorer
) -> None:
    page.add_init_script(
        """const send = window.fetch;
        window.fetch = async (address, options) => {
          if (options?.method === "POST") await new Promise((go) => setTimeout(go, 1000));
          return send(address, options);
        };"""
    )
    page.goto(f"/jobs/{explorer.job}")

    page.locator(".to-check .minis a").first.click()
    page.locator("html.scripts-run").wait_for()
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("link", name="All images").click()

    page.get_by_role("list", name="Images").wait_for()
    assert page.get_by_text("1 checked: 1 keep").first.is_visible()


def test_labels_are_reviewed_and_the_dataset_is_cleaned(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}")

    page.get_by_role("link", name=CHECK).click()
    page.get_by_role("list", name="Images").get_by_role("link").first.click()
    page.get_by_role("button", name="Drop").wait_for()
    first = page.url
    page.get_by_role("button", name="Drop").click()
    page.wait_for_url(lambda address: address != first)  # the next image
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("link", name="All images").click()
    page.get_by_text("2 checked: 1 keep, 0 relabel, 1 drop.").first.wait_for()
    page.get_by_role("button", name=re.compile("^Score again")).click()

    page.get_by_text("1 dropped", exact=False).first.wait_for(timeout=120_000)
    again = page.url.rpartition("/")[2]
    page.goto("about:blank")  # which may still ask for pictures of what is deleted next
    with explorer.client() as client:
        result = client.get(f"/v1/jobs/{again}").json()["result"]
        client.delete(f"/v1/jobs/{again}")
    assert result["num_samples"] == len(explorer.scores)  # the damaged image is in, the dropped out


def test_a_job_is_shared_with_a_colleague_by_name_who_decides_too(
    page: Page, stranger: Page, explorer: Explorer
) -> None:
    with open_database(Settings(data_dir=explorer.folder.parent / "data")) as engine:
        _, secret = create_key(engine, "Ana", ["write"])
    link = f"/jobs/{explorer.job}"

    page.goto(link)
    page.get_by_role("link", name="Share", exact=True).click()
    page.get_by_label("Name or id of the key").fill("ana")
    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_role("row", name="Ana").wait_for()
    stranger.goto(link)
    said = stranger.locator("main").inner_text()
    sign_in(stranger, secret)
    stranger.get_by_role("link", name=CHECK).click()
    stranger.get_by_role("list", name="Images").get_by_role("link").first.click()
    stranger.get_by_role("button", name="Keep").click()
    stranger.get_by_role("link", name="Review").click()
    stranger.get_by_text("1 checked: 1 keep").first.wait_for()

    assert "people check the labels of a dataset that are probably wrong" in said
    assert "Ask whoever sent you the link" in said
    page.get_by_role("button", name="Share no longer with Ana").click()
    page.get_by_role("heading", name="Share with a colleague").wait_for()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_it_is_found_out_why_an_image_is_hard(
    signed_in_page: OpenPage, explorer: Explorer, options: dict[str, Any]
) -> None:
    page = signed_in_page(**options)
    page.goto(f"/jobs/{explorer.job}")

    page.get_by_role("link", name="Review", exact=True).click()
    page.get_by_role("list", name="Images").get_by_role("link").first.click()
    question = page.get_by_role("heading", level=1)
    typical = page.get_by_role("heading", name="Typical").first
    chance = page.get_by_text(re.compile("Chance that the label is wrong|Label margin"))

    assert re.search(r", or .*\?", question.inner_text())
    assert re.search(r"(hardest of all|harder than) ", page.locator("main").inner_text())
    assert page.get_by_role("heading", name="Images like this one").is_visible()
    if options:
        heights = [each.bounding_box()["y"] for each in (question, typical, chance)]
        assert heights == sorted(heights)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_all_images_leads_back_to_where_one_came_from(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}/classes")
    page.locator(".strip a").first.click()
    page.get_by_role("link", name="Next image").click()

    page.get_by_role("link", name="Back to the classes").click()
    page.get_by_role("heading", name="Classes, hardest first").wait_for()
    page.get_by_role("link", name="Review", exact=True).click()
    page.get_by_role("list", name="Images").get_by_role("link").first.click()

    assert page.get_by_role("link", name="All images").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_pages_that_a_stranger_sees(
    page: Page, stranger: Page, explorer: Explorer, scheme: str
) -> None:
    found = []
    stranger.emulate_media(color_scheme=scheme)
    stranger.goto(f"/jobs/{explorer.job}")
    found += axe_findings(stranger)
    page.emulate_media(color_scheme=scheme)
    for part in ("", "/faults", "/reviewers", "/images", "/images/0", "/map", "/errors"):
        page.goto(f"/jobs/{explorer.job}{part}")
        found += axe_findings(page)
    page.goto("/")
    page.locator("#new-job details").evaluate_all(
        "all => all.forEach(each => { each.open = true })"
    )
    found += axe_findings(page)

    assert found == []
