"""What a person sees of a report: pictures, filters, the map, any device, any setting."""

from pathlib import Path
from typing import Any

import pytest

from difficulty_service.scores.file import read_scores
from tests.browser.kinds import OpenPage, Page
from tests.browser.reports import axe_findings, doubtful_rows, write_report
from tests.browser.storage import reload

Rows = list[dict[str, Any]]


def captions(page: Page) -> list[str]:
    """Label, margin and the class that fits better of the cards that are shown."""
    shown = page.locator(".card:visible .caption").all_inner_texts()
    return [" ".join(text.split()) for text in shown]


def expected_captions(rows: Rows) -> list[str]:
    return [
        f"{row['label_name']} {row['label_margin']:.1f} → looks like {row['nearest_label_name']}"
        for row in rows
    ]


def test_every_picture_loads(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)

    for part in page.locator("main section").all():
        part.scroll_into_view_if_needed()
    page.wait_for_function(
        "[...document.querySelectorAll('main img')].every((img) => img.complete)"
    )

    widths = page.evaluate("[...document.querySelectorAll('main img')].map((i) => i.naturalWidth)")
    assert len(widths) > 140
    assert set(widths) == {32}


def test_cards_are_in_the_order_of_the_score_file(
    open_page: OpenPage, report: Path, scored: Path
) -> None:
    page = open_page(report)

    rows = doubtful_rows(scored)
    assert len(rows) == 45
    assert captions(page) == expected_captions(rows)
    heading = page.get_by_role("heading", level=1).inner_text()
    assert heading == "45 of 90 images look more like another class than their own."


def test_filters_show_what_the_score_file_says(
    open_page: OpenPage, report: Path, scored: Path
) -> None:
    page = open_page(report)
    rows = doubtful_rows(scored)

    page.get_by_label("Label", exact=True).select_option("cat")
    cats = captions(page)
    page.get_by_label("Label", exact=True).select_option("")
    page.get_by_label("Smallest margin").fill("100")
    clearest = captions(page)
    count = page.locator("#cut-count").inner_text()
    page.get_by_label("Smallest margin").fill("200")
    largest = captions(page)

    assert cats == expected_captions([row for row in rows if row["label_name"] == "cat"])
    half = rows[0]["label_margin"] / 2
    above = [row for row in rows if row["label_margin"] >= half]
    assert 0 < len(above) < len(rows)
    assert clearest == expected_captions(above)
    assert count == f"{len(above)} images, {100 * len(above) / 90:.1f} % of all"
    assert largest == expected_captions(rows[:1])


def test_a_cell_of_the_confusions_shows_its_images(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)

    cell = page.locator(".matrix a").first
    count = int(cell.inner_text())
    cell.click()

    shown = captions(page)
    assert len(shown) == count
    assert all(text.startswith("bird") and text.endswith("looks like cat") for text in shown)


def test_a_filter_that_nothing_matches_can_be_taken_back(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)

    page.get_by_label("Label", exact=True).select_option("cat")
    page.get_by_label("Looks like").select_option("cat")
    assert captions(page) == []
    page.get_by_role("button", name="Show all").click()

    assert len(captions(page)) == 45


def test_the_map_names_the_image_under_the_mouse(
    open_page: OpenPage, report_with_map: Path, scored: Path
) -> None:
    page = open_page(report_with_map)
    names = {row["sample_id"]: row["label_name"] for row in read_scores(scored).table.to_pylist()}
    canvas = page.locator("#map-canvas")
    canvas.scroll_into_view_if_needed()
    place = page.evaluate(
        """() => {
            const data = JSON.parse(document.getElementById("map-data").textContent);
            const bytes = atob(data.columns.positions[1]);
            const canvas = document.getElementById("map-canvas");
            const number = (i) => bytes.charCodeAt(i) + 256 * bytes.charCodeAt(i + 1);
            return [
                12 + number(0) / 65535 * (canvas.clientWidth - 24),
                canvas.clientHeight - 12 - number(2) / 65535 * (canvas.clientHeight - 24),
            ];
        }"""
    )

    canvas.hover(position={"x": round(place[0]), "y": round(place[1])})
    name, harder, sample_id = page.locator("#map-tip span").inner_text().split(" · ")
    before = canvas.screenshot()
    page.get_by_label("doubtful labels").check()
    key = page.locator("#map-key li").all_inner_texts()

    assert names[sample_id] == name
    assert harder.startswith("harder than")
    assert key == ["another class fits better", "own class fits best"]
    assert canvas.screenshot() != before


def test_the_wheel_zooms_the_map_of_a_report_with_ctrl_and_else_scrolls_the_page(
    open_page: OpenPage, report_with_map: Path
) -> None:
    page = open_page(report_with_map)
    page.locator("#map-canvas").scroll_into_view_if_needed()
    page.locator("#map-canvas").hover()
    whole = page.get_by_role("button", name="Whole map")

    page.mouse.wheel(0, -60)
    page.wait_for_timeout(100)
    scrolled = whole.is_disabled()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    page.wait_for_function("() => !document.getElementById('map-whole').disabled")
    whole.click()

    assert scrolled
    assert whole.is_disabled()


def test_without_javascript_everything_reads_and_no_control_is_shown(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report, java_script_enabled=False)

    assert page.locator(".card").count() == 45
    page.get_by_role("link", name="Start checking").click()
    covered = page.locator(".top").bounding_box()["height"]
    assert covered <= page.locator(".card").first.bounding_box()["y"] < 400
    assert page.locator(".classes tbody tr").count() == 3
    for control in ("#theme", "#controls", "#tray", "dialog"):
        assert not page.locator(control).first.is_visible()


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_nothing_is_wider_than_the_window(open_page: OpenPage, hostile: Path, device: str) -> None:
    page = open_page(write_report(hostile), device)

    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")

    assert widths[0] <= widths[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, report: Path, device: str, scheme: str) -> None:
    page = open_page(report, device, color_scheme=scheme)

    findings = axe_findings(page)
    page.locator(".look").first.focus()
    page.keyboard.press("d")
    page.keyboard.press("k")
    page.keyboard.press("x")
    page.locator("#selection").wait_for()
    findings += axe_findings(page)
    page.keyboard.press("Enter")
    findings += axe_findings(page)

    assert findings == []


def test_the_theme_can_be_chosen_and_stays(open_page: OpenPage, report: Path) -> None:
    page = open_page(report, color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    reload(page)

    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
