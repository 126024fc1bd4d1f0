"""Columns of a table beside the scores, in reports and in the explorer, in a real browser."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.score_columns import FAULT_COLUMN
from tests.browser.kinds import BrowserContext, Locator, OpenPage, Page
from tests.browser.reports import axe_findings
from tests.factories import store_of

SAMPLES = 90
CAMERAS = ("A", "<b>B</b>", 'C" onfocus="alert(1)')
LONG = "very long name " * 15
FAULTS = {4: "dark", 7: "blurred", 70: "dark"}
TIMEOUT = 60.0


def camera_of(row: int) -> str | None:
    return None if row == 88 else CAMERAS[row % 3]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Columns of every kind for the ninety samples, with hostile names and values."""
    rows = range(SAMPLES)
    columns = {
        "sample_id": [f"{row}.png" for row in rows],
        "camera": [camera_of(row) for row in rows],
        "taken": pa.array([86400 * row for row in rows], pa.timestamp("s", "Europe/Berlin")),
        "<img src=x onerror=alert(1)>": [row / 8 for row in rows],
        LONG: [f"text {row} {'w' * 400}" for row in rows],
        "country": [f"country {row % 12}" for row in rows],
        "checked": [None if row == 0 else row % 2 == 0 for row in rows],
    }
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def report(make_scored: Callable[..., Path], table: Path) -> Path:
    """A report of samples with these columns."""
    scores = make_scored()
    path = scores.with_suffix(".html")
    make_report(read_reported(scores), path, ReportOptions(columns=[str(table)]))
    return path


def numbers_of(cards: Locator) -> list[int]:
    """Rows of the samples on cards, from the names of their pictures."""
    alts = cards.locator(".look img").evaluate_all("all => all.map(each => each.alt)")
    return [int(re.findall(r"(\d+)\.png$", alt)[0]) for alt in alts]


def test_cards_of_a_report_are_filtered_and_captioned_by_columns(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)
    cards = page.locator("#grid > .card:visible")
    every = numbers_of(cards)

    page.locator("#column-filters > summary").click()
    page.get_by_label("camera").select_option(label="<b>B</b> (14)")
    of_b = numbers_of(cards)
    group = page.get_by_role("group", name="<img")
    group.get_by_label("from").fill("2")
    group.get_by_label("to").fill("8")
    both = numbers_of(cards)
    caption = cards.first.locator(".caption .column").all_inner_texts()
    page.get_by_role("group", name="taken").get_by_label("to").fill("1970-02-01")
    until = numbers_of(cards)
    cards.first.locator(".look").click()
    facts = page.locator("#dialog-text").inner_text()
    page.keyboard.press("Escape")
    page.get_by_label(re.compile("^very long")).fill("no such text")
    page.get_by_role("button", name="Show all").click()

    assert of_b == [row for row in every if camera_of(row) == "<b>B</b>"]
    assert both == [row for row in of_b if 16 <= row <= 64]
    assert caption == ["camera <b>B</b>", f"<img src=x onerror=alert(1)> {both[0] / 8:g}"]
    assert until == [row for row in both if row <= 31]
    assert "camera: <b>B</b> · taken: 1970-01-" in facts
    assert numbers_of(cards) == every


def test_a_column_without_a_value_is_not_among_the_facts_of_an_image(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)

    facts = {}
    for row in (0, 88, 2):  # the first was never checked, the second has no camera
        page.locator(f'#grid img[data-row="{row}"]').click()
        facts[row] = page.locator("#dialog-text").inner_text()
        page.keyboard.press("Escape")

    assert ["camera: " in text for text in facts.values()] == [True, False, True]
    assert ["checked: " in text for text in facts.values()] == [False, True, True]


@pytest.mark.parametrize("device", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_filters_of_a_report(
    open_page: OpenPage, report: Path, device: str, scheme: str
) -> None:
    page = open_page(report, device, color_scheme=scheme, bypass_csp=True)
    if device == "phone":
        page.locator("#controls > summary").click()
    page.locator("#column-filters > summary").click()
    page.get_by_label("camera").select_option(index=1)

    assert axe_findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def explore(
    table: Path,
    fork_command: Callable[..., ForkServerProcess],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Path], str]]:
    """Explores a score file with columns; gives the address of its pages."""
    processes = []

    def start(scores: Path) -> str:
        output = tmp_path_factory.mktemp("output") / "output"
        command = ("explore", scores, "--no-browser", "--columns", table)
        process = fork_command(*command, output=output, errors=output.with_suffix(".errors"))
        processes.append(process)
        end = time.monotonic() + TIMEOUT
        while not (
            found := re.findall(r"http://\S+", output.read_text() if output.exists() else "")
        ):
            assert process.is_alive(), output.with_suffix(".errors").read_text()
            assert time.monotonic() < end, "the explorer does not listen"
            time.sleep(0.05)
        return str(found[0])

    yield start
    for process in processes:
        process.terminate()
        process.join(60)


@pytest.fixture(scope="module")
def explorer(make_scored: Callable[..., Path], explore: Callable[[Path], str]) -> str:
    """Address of the pages of a score file with columns, which names faults of some images."""
    scores = make_scored()
    content = read_scores(scores)
    faults = pa.array([FAULTS.get(row) for row in range(SAMPLES)]).dictionary_encode()
    write_scores(scores, content.table.append_column(FAULT_COLUMN, faults), content.provenance)
    return explore(scores)


@pytest.fixture
def new_page(make_context: Callable[..., BrowserContext], explorer: str) -> Callable[..., Page]:
    def new(**options: object) -> Page:
        return make_context((explorer.partition("/jobs")[0],), **options).new_page()

    return new


def wait_for_rows(page: Page, expected: list[int]) -> None:
    """Until the cards show these rows in this order; a page is exchanged after its response."""
    cards = page.locator("#grid > .card")
    end = time.monotonic() + TIMEOUT
    while (
        rows := [int(row) for row in cards.evaluate_all("all => all.map(one => one.dataset.row)")]
    ) != expected:
        assert time.monotonic() < end, f"{rows}, not {expected}"
        page.wait_for_timeout(50)


def test_filters_and_orders_by_columns_are_in_the_address_and_in_captions(
    new_page: OpenPage, explorer: str
) -> None:
    page = new_page()
    page.goto(f"{explorer}/images?sort=file")

    page.locator(".column-box > summary").click()
    with page.expect_response(re.compile("is.camera")):
        page.get_by_role("checkbox", name="<b>B</b>").check()
    with page.expect_response(re.compile("sort=desc.taken")):
        page.get_by_label("Order").select_option(label="taken, latest first")
    expected = [row for row in reversed(range(SAMPLES)) if row % 3 == 1 and row != 88][:60]

    wait_for_rows(page, expected)
    assert "is.camera=%3Cb%3EB%3C%2Fb%3E" in page.url
    assert page.locator(".card .column").all_inner_texts()[:2] == [
        "camera <b>B</b>",
        f"taken {day_of(expected[0])} 00:00:00 UTC",
    ]
    page.reload()
    wait_for_rows(page, expected)


def test_images_with_a_fault_are_listed_by_a_filter_and_say_which(
    new_page: OpenPage, explorer: str
) -> None:
    page = new_page()
    page.goto(f"{explorer}/images?sort=file")

    page.locator(".column-box > summary").click()
    faults = page.get_by_role("group", name=FAULT_COLUMN)
    with page.expect_response(re.compile("is.image_fault=dark")):
        faults.get_by_role("checkbox", name="dark 2").check()
    wait_for_rows(page, [4, 70])
    captions = page.locator(".card .column").all_inner_texts()
    page.goto(f"{explorer}/images?sort=file&is.image_fault=(some)")

    wait_for_rows(page, sorted(FAULTS))
    assert captions == ["image_fault dark"] * 2
    assert faults.get_by_role("checkbox", name="(some) 3").is_checked()


def day_of(row: int) -> str:
    return str(date(1970, 1, 1) + timedelta(days=row))


def test_pages_with_columns_work_without_javascript(new_page: OpenPage, explorer: str) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(f"{explorer}/images?sort=file")

    page.locator(".column-box > summary").click()
    page.get_by_label("country").select_option("country 5")
    page.get_by_role("group", name="<img").get_by_label("to").fill("4")
    with page.expect_navigation():
        page.get_by_role("button", name="Show", exact=True).click()

    wait_for_rows(page, [5, 17, 29])
    assert page.get_by_label("country").input_value() == "country 5"

    page.locator(".views > summary").click()
    page.get_by_label("Name of this view").fill("Fifth <b>country")
    with page.expect_navigation():
        page.get_by_role("button", name="Save this view").click()
    page.goto(f"{explorer}/images")
    page.locator(".views > summary").click()
    with page.expect_navigation():
        page.get_by_role("link", name="Fifth <b>country").click()

    wait_for_rows(page, [5, 17, 29])

    page.locator(".views > summary").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Remove Fifth <b>country").click()
    assert page.get_by_role("link", name="Fifth").count() == 0


def test_a_view_that_is_saved_is_listed_at_once(new_page: OpenPage, explorer: str) -> None:
    page = new_page()
    page.goto(f"{explorer}/images?sort=file")

    page.locator(".views > summary").click()
    page.get_by_label("Name of this view").fill("As in the dataset")
    page.get_by_role("button", name="Save this view").click()

    page.locator(".views > summary", has_text="(1)").click()
    page.get_by_role("button", name="Remove As in the dataset").click()
    page.locator(".views > summary", has_text="(1)").wait_for(state="detached")


@pytest.mark.parametrize("device", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_pages_with_columns(
    new_page: OpenPage, explorer: str, device: str, scheme: str
) -> None:
    size = {"width": 1280, "height": 900} if device == "desktop" else {"width": 390, "height": 844}
    page = new_page(color_scheme=scheme, viewport=size, bypass_csp=True)
    condition = "is.country=country+1&is.country=country+2&min.taken=1970-01-01T01:00&sort=file"
    for address in (f"/images?{condition}", "/images/4"):
        page.goto(explorer + address)
        for summary in page.locator(".views > summary, .side-box:not([open]) > summary").all():
            if summary.is_visible():
                summary.click()

        assert axe_findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_the_key_l_lists_images_like_the_one_with_the_focus(
    new_page: OpenPage, explorer: str
) -> None:
    page = new_page()
    page.goto(f"{explorer}/images?sort=file")

    page.locator("#image-7 .look").focus()
    page.keyboard.press("l")
    page.wait_for_url("**/images?like=7")

    assert "no features to compare images by" in page.locator(".problem").inner_text()


def with_features(scores: Path) -> Path:
    """Scores beside features that separate the classes, so that there is a map."""
    labels = torch.arange(SAMPLES) % 3
    noise = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(0))
    ids = [f"{row}.png" for row in range(SAMPLES)]
    store_of(scores.with_suffix(".features"), noise + 5 * torch.eye(3)[labels], labels, ids)
    return scores


def check_colours(page: Page) -> None:
    """Colours the map by a category and by dates, whose names are hostile."""
    page.get_by_label("camera").and_(page.locator("[name=colour]")).check()
    page.locator("#map-key button", has_text="<b>B</b>").wait_for()
    cameras = page.locator("#map-key button").all_inner_texts()
    page.get_by_label("taken").and_(page.locator("[name=colour]")).check()
    page.locator("#map-key li", has_text="1970-01-01").wait_for()
    days = page.locator("#map-key li").all_inner_texts()

    assert sorted(cameras) == sorted(CAMERAS)
    assert [text.split()[0] for text in days] == ["1970-03-31", "1970-02-14", "1970-01-01"]
    assert page.get_by_label(LONG[:50]).and_(page.locator("[name=colour]")).count() == 0


def test_the_map_of_the_explorer_is_coloured_by_columns_whatever_their_names_are(
    make_scored: Callable[..., Path],
    explore: Callable[[Path], str],
    make_context: Callable[..., BrowserContext],
) -> None:
    address = explore(with_features(make_scored()))
    page = make_context((address.partition("/jobs")[0],), color_scheme="dark").new_page()
    page.goto(f"{address}/map")

    check_colours(page)
    assert axe_findings(page) == []


def test_the_map_of_a_report_is_coloured_by_columns_too(
    make_scored: Callable[..., Path], table: Path, open_page: OpenPage
) -> None:
    scores = with_features(make_scored())
    path = scores.with_suffix(".html")
    options = ReportOptions(columns=[str(table)], features=scores.with_suffix(".features"))
    make_report(read_reported(scores), path, options)

    check_colours(open_page(path))
