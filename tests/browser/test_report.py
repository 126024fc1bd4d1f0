"""A person with a report: looks, filters, marks, comes back, downloads, and cleans the dataset."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from difficulty_service.cleaning.decisions import CleaningRules, decide
from difficulty_service.cleaning.marks import Mark, MarkedSample, Marks, read_marks
from difficulty_service.score_file import read_scores

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]
Rows = list[dict[str, Any]]


def doubtful_rows(scores: Path) -> Rows:
    """What the file says of the doubtful samples, the largest margin first."""
    rows = read_scores(scores).table.to_pylist()
    return sorted(
        (row for row in rows if row["label_margin"] > 0), key=lambda row: -row["label_margin"]
    )


def captions(page: "Page") -> list[str]:
    """Label, margin and the class that fits better of the cards that are shown."""
    shown = page.locator(".card:visible .caption").all_inner_texts()
    return [" ".join(text.split()) for text in shown]


def expected_captions(rows: Rows) -> list[str]:
    return [
        f"{row['label_name']} {row['label_margin']:.1f} → looks like {row['nearest_label_name']}"
        for row in rows
    ]


def with_names(rows: Rows, classes: tuple[str, ...] = ("bird", "cat", "dog")) -> Rows:
    return [row | {"nearest_label_name": classes[row["nearest_label"]]} for row in rows]


def download_marks(page: "Page", folder: Path, known: set[str]) -> Marks:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download marks").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "marks.csv"
    return read_marks(path, known)


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

    rows = with_names(doubtful_rows(scored))
    assert len(rows) == 45
    assert captions(page) == expected_captions(rows)
    heading = page.get_by_role("heading", level=1).inner_text()
    assert heading == "45 of 90 images look more like another class than their own."


def test_filters_show_what_the_score_file_says(
    open_page: OpenPage, report: Path, scored: Path
) -> None:
    page = open_page(report)
    rows = with_names(doubtful_rows(scored))

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


def test_a_review_by_keyboard_alone(open_page: OpenPage, report: Path, scored: Path) -> None:
    page = open_page(report)
    rows = with_names(doubtful_rows(scored))

    for _ in range(40):  # from the top of the page to the first card
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('look')"):
            break
    for key in ("r", "d", "ArrowRight", "k", "Home", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    dialog = page.get_by_role("dialog")
    title = dialog.get_by_role("heading", level=2).inner_text()
    page.keyboard.press("d")
    place = dialog.locator("#dialog-place").inner_text()
    page.keyboard.press("Escape")
    focused = page.evaluate("document.activeElement.closest('.card').dataset.index")

    stamps = [text for text in page.locator(".stamp").all_inner_texts() if text]
    assert sorted(stamps) == sorted([rows[0]["nearest_label_name"], "drop", "keep", "drop"])
    below = int(focused) - 1
    assert title == f"{rows[below]['label_name']}, or {rows[below]['nearest_label_name']}?"
    assert place == f"{below + 2} of 45"
    assert not dialog.is_visible()
    assert "4 checked: 1 keep, 1 relabel, 2 drop." in page.locator("#tray-text").inner_text()


def test_the_dialog_shows_typical_images_of_both_classes(
    open_page: OpenPage, report: Path, scored: Path
) -> None:
    page = open_page(report)
    row = with_names(doubtful_rows(scored))[0]

    page.locator(".look").first.click()
    dialog = page.get_by_role("dialog")

    assert dialog.get_by_text(f"Typical {row['label_name']}").is_visible()
    for name in (row["label_name"], row["nearest_label_name"]):
        assert dialog.get_by_alt_text(f"typical {name}").count() == 6
    assert row["sample_id"] in dialog.locator("#dialog-text").inner_text()
    dialog.get_by_role("button", name=f"Relabel as {row['nearest_label_name']}").click()
    assert page.locator(".stamp").first.inner_text() == row["nearest_label_name"]


def test_the_tray_gives_the_share_of_wrong_labels_with_its_interval(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)

    page.locator(".look").first.focus()
    for key in "rrdkkkkkkk":
        page.keyboard.press(key)
    before = page.locator("#tray-text").inner_text()
    page.get_by_role("button", name="Undo").click()

    # Wilson's interval of 3 in 10, by the formula: 10.8 % to 60.3 %.
    assert "30 % of these labels are wrong (95 % interval 11\N{EN DASH}60 %)." in before
    assert "9 checked: 6 keep, 2 relabel, 1 drop." in page.locator("#tray-text").inner_text()


def test_marks_survive_a_reload_and_reach_another_tab(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    other = page.context.new_page()
    other.goto(report.as_uri())

    page.locator(".look").first.focus()
    page.keyboard.press("d")
    other.wait_for_selector("[data-mark=drop]")
    other.locator(".look").nth(1).focus()
    other.keyboard.press("k")
    page.wait_for_selector("[data-mark=keep]")
    page.reload()

    assert "2 checked: 1 keep, 0 relabel, 1 drop." in page.locator("#tray-text").inner_text()
    assert page.locator(".card").first.get_attribute("data-mark") == "drop"


def test_downloaded_marks_are_what_clean_reads(
    open_page: OpenPage, report: Path, scored: Path, tmp_path: Path
) -> None:
    page = open_page(report)
    rows = with_names(doubtful_rows(scored))
    page.locator(".look").first.focus()
    for key in "rdk":
        page.keyboard.press(key)

    marks = download_marks(page, tmp_path, {row["sample_id"] for row in rows})

    assert marks.warnings == ()
    assert marks.samples == {
        rows[0]["sample_id"]: MarkedSample(Mark.RELABEL, rows[0]["nearest_label_name"]),
        rows[1]["sample_id"]: MarkedSample(Mark.DROP),
        rows[2]["sample_id"]: MarkedSample(Mark.KEEP),
    }
    decisions = decide(read_scores(scored), CleaningRules(marks.samples))
    assert sum(each.dropped for each in decisions.classes.values()) == 1
    assert sum(each.moved_out for each in decisions.classes.values()) == 1


def test_hostile_ids_and_classes_are_text_and_come_back_from_the_download(
    open_page: OpenPage, hostile: Path, write: Callable[[Path], Path], tmp_path: Path
) -> None:
    page = open_page(write(hostile))
    rows = doubtful_rows(hostile)
    names = read_scores(hostile).provenance["class_names"]

    page.locator(".look").first.click()
    title = page.locator("#dialog-title").text_content()
    page.keyboard.press("Escape")
    for _ in rows:
        page.keyboard.press("r")
    marks = download_marks(page, tmp_path, {row["sample_id"] for row in rows})

    assert title == f"{rows[0]['label_name']}, or {names[rows[0]['nearest_label']]}?"
    assert page.locator("b:text-is('bird')").count() == 0
    assert marks.samples == {
        row["sample_id"]: MarkedSample(Mark.RELABEL, names[row["nearest_label"]].strip())
        for row in rows
    }


def test_without_javascript_everything_reads_and_no_control_is_shown(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report, java_script_enabled=False)

    assert page.locator(".card").count() == 45
    assert page.locator(".classes tbody tr").count() == 3
    for control in ("#theme", "#controls", "#tray", "dialog"):
        assert not page.locator(control).first.is_visible()


def test_a_browser_that_stores_nothing_says_so(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw 1; }})")
    page.reload()

    page.locator(".look").first.focus()
    page.keyboard.press("k")

    text = page.locator("#tray-text").inner_text()
    assert "1 checked" in text
    assert "This browser does not keep them: download before you leave." in text


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_nothing_is_wider_than_the_window(
    open_page: OpenPage, hostile: Path, write: Callable[[Path], Path], device: str
) -> None:
    page = open_page(write(hostile), device)

    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")

    assert widths[0] <= widths[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, report: Path, device: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(report, device, color_scheme=scheme)

    findings = axe.run(page).response["violations"]
    page.locator(".look").first.focus()
    page.keyboard.press("d")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    findings += axe.run(page).response["violations"]

    assert [(each["id"], each["nodes"][0]["html"]) for each in findings] == []


def test_the_theme_can_be_chosen_and_stays(open_page: OpenPage, report: Path) -> None:
    page = open_page(report, color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    page.reload()

    assert page.get_by_role("button", name="Theme: dark").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
