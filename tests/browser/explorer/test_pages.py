"""Jobs are made and followed in a real browser, and no page breaks its own rules."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import BrowserContext, OpenPage, Page
from tests.browser.reports import axe_findings

PAGES = (
    "/",
    "/jobs/{job}",
    "/jobs/{job}/images",
    "/jobs/{job}/images?label=nothing",
    "/jobs/{job}/images/0",
    "/jobs/{job}/classes",
    "/jobs/{job}/pairs",
    "/jobs/{job}/pairs/0/2",
    "/jobs/{job}/map",
    "/jobs/{job}/copies",
    "/jobs/{job}/errors",
    "/jobs/{job}/columns",
    "/jobs/{job}/comparisons",
    "/jobs/{job}/reviewers",
    "/docs",
    "/jobs/none",
)
MANY = 3000


@pytest.fixture
def many_images(explorer: Explorer) -> str:
    """A folder below the root whose images take some seconds to score."""
    for name in ("one", "two"):
        folder = explorer.folder / "many" / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(MANY // 2):
            source = explorer.folder / "train" / "dog" / f"d{number % 40:02}.png"
            if not (folder / f"{number}.png").exists():
                (folder / f"{number}.png").hardlink_to(source)
    return "many"


REMEMBER_PROGRESS = """
new MutationObserver(() => {
    const bar = document.querySelector("#progress progress");
    const seen = new Set(JSON.parse(sessionStorage.seen ?? "[]"));
    if (bar) sessionStorage.seen = JSON.stringify([...seen.add(bar.getAttribute("value"))]);
}).observe(document, {subtree: true, childList: true, attributes: true});
"""
"""Keeps every value that the progress bar has had: asking for it now and then may miss some."""


@pytest.mark.long
def test_a_new_job_shows_its_progress_until_its_summary_appears(
    page: Page, many_images: str
) -> None:
    page.add_init_script(REMEMBER_PROGRESS)
    page.goto("/")
    page.get_by_label("Folder or file below it").fill(many_images)
    page.get_by_role("button", name="Score", exact=True).click()

    page.get_by_text(re.compile(f"of {MANY:,} images")).wait_for()
    page.locator(".first-actions").wait_for()

    assert len(page.evaluate("JSON.parse(sessionStorage.seen)")) > 1
    assert page.locator("#progress").count() == 0


def test_a_folder_that_does_not_exist_is_explained_beside_the_form(
    page: Page, problems: list[str]
) -> None:
    page.goto("/")
    page.get_by_label("Folder or file below it").fill("nowhere")
    page.get_by_role("button", name="Score", exact=True).click()

    assert "there is no 'nowhere' in the root 'photos'" in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Folder or file below it").input_value() == "nowhere"
    assert [problem for problem in problems if "422" not in problem] == []
    problems.clear()


def test_a_file_that_is_dropped_is_uploaded_and_scored(
    page: Page, explorer: Explorer, tmp_path: Path
) -> None:
    archive = tmp_path / "train.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((explorer.folder / "train").glob("[!<]*/*.png")):
            file.write(path, path.relative_to(explorer.folder / "train"))
    page.goto("/")

    page.get_by_label("Upload a file").check()
    page.locator("#file").set_input_files(archive)
    page.get_by_text("train.zip has arrived.").wait_for()
    page.get_by_role("button", name="Score", exact=True).click()
    page.locator(".first-actions").wait_for()

    page.wait_for_load_state("networkidle")
    assert page.locator(".kinds img").first.evaluate("image => image.naturalWidth") == 32


def test_hostile_names_are_shown_as_text(page: Page, explorer: Explorer) -> None:
    (hostile,) = (row for row in explorer.scores if "onerror" in row["sample_id"])
    row = explorer.scores.index(hostile)

    page.goto(f"/jobs/{explorer.job}/images/{row}")
    sample_id = page.locator(".sample-id").inner_text()
    page.goto(f"/jobs/{explorer.job}/classes")
    classes = page.locator("tbody th").all_inner_texts()

    assert sample_id == hostile["sample_id"]
    assert sorted(classes) == ["<b>cat<", "bird", "dog"]


def test_every_picture_of_a_page_loads(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}/pairs")
    page.wait_for_load_state("networkidle")

    widths = page.eval_on_selector_all("img", "all => all.map(image => image.naturalWidth)")

    assert widths
    assert min(widths) == 32


def test_a_cell_of_the_confusions_leads_to_its_images(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}/pairs")
    link = page.locator(".matrix a").first
    number = int(link.inner_text())
    link.click()
    page.locator(".results-head b").get_by_text(str(number), exact=True).wait_for()

    assert page.locator(".card").count() == number


def test_the_page_of_a_pair_has_the_images_of_both_directions(
    page: Page, explorer: Explorer
) -> None:
    page.goto(f"/jobs/{explorer.job}/pairs")
    page.locator(".pair-title a").first.click()
    page.get_by_role("heading", name="Typical").first.wait_for()
    first, second = map(int, page.url.split("/")[-2:])

    links = page.locator("a.thumb:has(.tag)").evaluate_all("all => all.map(a => a.href)")
    shown = [int(link.rpartition("/")[2]) for link in links]

    expected = [
        sorted(
            (
                row
                for row, score in enumerate(explorer.scores)
                if (score["label"], score["nearest_label"]) == pair and score["label_margin"] > 0
            ),
            key=lambda row: -explorer.scores[row]["label_margin"],
        )
        for pair in ((first, second), (second, first))
    ]
    assert all(len(rows) <= 24 for rows in expected)
    assert shown[: sum(map(len, expected))] == [*expected[0], *expected[1]]
    assert expected[0] or expected[1]


def test_a_pair_of_classes_that_do_not_exist_is_not_found(
    context: BrowserContext, explorer: Explorer
) -> None:
    for pair in ("0/7", "1/1"):
        assert context.request.get(f"/jobs/{explorer.job}/pairs/{pair}").status == 404


def test_a_damaged_image_is_listed_with_the_reason(page: Page, explorer: Explorer) -> None:
    page.goto(f"/jobs/{explorer.job}/errors")

    assert page.locator("tbody tr").count() == 1
    assert "damaged.png" in page.locator("tbody").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(
    new_context: Callable[..., BrowserContext],
    signed_in_page: OpenPage,
    explorer: Explorer,
    problems: list[str],
    scheme: str,
) -> None:
    strangers = new_context(color_scheme=scheme).new_page()
    strangers.goto("/sign-in")
    found = {"/sign-in": axe_findings(strangers)}
    page = signed_in_page(color_scheme=scheme)

    for address in PAGES:
        page.goto(address.format(job=explorer.job))
        found[address] = axe_findings(page)

    assert {address: each for address, each in found.items() if each} == {}
    assert [problem for problem in problems if "404" not in problem] == []
    problems.clear()


@pytest.mark.parametrize("width", [320, 390])
def test_no_page_is_wider_than_a_phone(
    signed_in_page: OpenPage, explorer: Explorer, problems: list[str], width: int
) -> None:
    page = signed_in_page(viewport={"width": width, "height": 800})

    widths = {}
    for address in PAGES:
        page.goto(address.format(job=explorer.job))
        widths[address] = page.evaluate("document.documentElement.scrollWidth")

    assert {address: found for address, found in widths.items() if found > width} == {}
    problems.clear()
