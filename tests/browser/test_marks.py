"""Marks in a report: by keyboard or dialog, kept in the browser, downloaded for `clean`."""

import csv
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from difficulty_service.cleaning.decisions import CleaningRules, decide
from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, Marks
from difficulty_service.scores.file import read_scores, write_scores
from tests.browser.kinds import OpenPage, Page
from tests.browser.reports import doubtful_rows, write_report
from tests.browser.storage import reload

Rows = list[dict[str, Any]]


def download_marks(page: Page, folder: Path, known: set[str]) -> Marks:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download marks").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "marks.csv"
    return read_marks(path, known)


def test_a_review_by_keyboard_alone(open_page: OpenPage, report: Path, scored: Path) -> None:
    page = open_page(report)
    rows = doubtful_rows(scored)

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
    cards = "[...document.querySelectorAll('.card')]"
    focused = page.evaluate(f"{cards}.indexOf(document.activeElement.closest('.card'))")

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
    row = doubtful_rows(scored)[0]

    page.locator(".look").first.click()
    dialog = page.get_by_role("dialog")

    assert dialog.get_by_text(f"Typical {row['label_name']}").is_visible()
    for name in (row["label_name"], row["nearest_label_name"]):
        assert dialog.get_by_alt_text(f"typical {name}").count() == 6
    assert row["sample_id"] in dialog.locator("#dialog-text").inner_text()
    dialog.get_by_role("button", name=f"Relabel as {row['nearest_label_name']}").click()
    assert page.locator(".stamp").first.inner_text() == row["nearest_label_name"]


def test_the_tray_counts_the_wrong_labels_without_an_interval(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)

    page.locator(".look").first.focus()
    for key in "rrdkkkkkkk":
        page.keyboard.press(key)
    before = page.locator("#tray-text").inner_text()
    page.get_by_role("button", name="Undo").click()

    assert "3 of the 10 labels that were checked one by one are wrong." in before
    assert "interval" not in before
    assert "9 checked: 6 keep, 2 relabel, 1 drop." in page.locator("#tray-text").inner_text()


def test_marks_survive_a_reload_and_reach_another_tab(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    other = page.context.new_page()
    other.goto(report.as_uri())

    page.bring_to_front()  # as a person does, whose keys reach the tab in front
    page.locator(".look").first.focus()
    page.keyboard.press("d")
    page.wait_for_selector("[data-mark=drop]")
    other.bring_to_front()
    other.wait_for_selector("[data-mark=drop]")
    other.locator(".look").nth(1).focus()
    other.keyboard.press("k")
    page.wait_for_selector("[data-mark=keep]")
    reload(page)

    assert "2 checked: 1 keep, 0 relabel, 1 drop." in page.locator("#tray-text").inner_text()
    assert page.locator(".card").first.get_attribute("data-mark") == "drop"


def test_downloaded_marks_are_what_clean_reads(
    open_page: OpenPage, report: Path, scored: Path, tmp_path: Path
) -> None:
    page = open_page(report)
    rows = doubtful_rows(scored)
    page.locator(".look").first.focus()
    for key in "rdk":
        page.keyboard.press(key)

    marks = download_marks(page, tmp_path, {row["sample_id"] for row in rows})

    assert marks.warnings == ()
    other = rows[0]["nearest_label_name"]
    expected = ((Mark.RELABEL, other), (Mark.DROP, None), (Mark.KEEP, None))
    assert marks.samples == {
        row["sample_id"]: MarkedSample(
            row["sample_id"], mark, label, given_label=row["label_name"], order="doubtful"
        )
        for row, (mark, label) in zip(rows[:3], expected, strict=True)
    }
    decisions = decide(read_scores(scored), CleaningRules(marks.samples))
    assert sum(each.dropped for each in decisions.classes.values()) == 1
    assert sum(each.moved_out for each in decisions.classes.values()) == 1


def signs(page: Page) -> list[str]:
    """The marks on the pictures of the copies."""
    return page.locator(".copies .strip > li").evaluate_all(
        "all => all.map(each => each.querySelector('.copy')?.textContent ?? '')"
    )


def test_groups_of_copies_get_one_label_or_one_is_kept_as_in_the_service(
    open_page: OpenPage, report: Path, scored: Path, tmp_path: Path
) -> None:
    page = open_page(report)
    rows = {row["sample_id"]: row for row in read_scores(scored).table.to_pylist()}
    actions = page.locator(".copy-actions").get_by_role("button")
    words = actions.all_inner_texts()
    one_label = page.get_by_role("button", name="All are cat")

    one_label.click()
    shown = [signs(page)]
    pressed = [one_label.get_attribute("aria-pressed")]
    tray = page.locator("#tray-text").inner_text()
    reload(page)
    shown.append(signs(page))
    marks = download_marks(page, tmp_path, set(rows))
    one_label.click()  # takes it back
    shown.append(signs(page))
    pressed.append(one_label.get_attribute("aria-pressed"))
    page.get_by_role("button", name="Keep one dog").click()
    shown.append(signs(page))
    page.get_by_role("button", name="Undo").click()
    shown.append(signs(page))

    classes = ["bird", "cat", "dog"]
    assert words == [f"{verb} {name}" for verb in ("All are", "Keep one") for name in classes]
    decided = ["cat", "keep", "cat"]
    assert shown == [decided, decided, [""] * 3, ["drop", "drop", "keep"], [""] * 3]
    assert pressed == ["true", "false"]
    assert tray.startswith("3 checked: 1 keep, 2 relabel, 0 drop.")
    assert marks.warnings == ()
    assert marks.samples == {
        "0.png": MarkedSample("0.png", Mark.RELABEL, "cat", given_label="bird"),
        "7.png": MarkedSample("7.png", Mark.KEEP, given_label="cat"),
        "8.png": MarkedSample("8.png", Mark.RELABEL, "cat", given_label="dog"),
    }


def test_copies_are_decided_about_where_no_label_is_doubtful(
    open_page: OpenPage, scored: Path
) -> None:
    contents = read_scores(scored)
    names = contents.table.column_names
    table = contents.table
    fitting = {"label_margin": [-1.0] * len(table), "nearest_label": table["label"].to_pylist()}
    for name, values in fitting.items():
        column = pa.array(values, table.schema.field(name).type)
        table = table.set_column(names.index(name), table.schema.field(name), column)
    path = scored.with_name("fitting.parquet")
    write_scores(path, table, contents.provenance)
    page = open_page(write_report(path))

    page.get_by_role("button", name="Keep one cat").click()
    shown = signs(page)
    reload(page)
    page.get_by_role("button", name="Download marks").wait_for()

    assert page.locator("#grid").count() == 0
    assert shown == signs(page) == ["drop", "keep", "drop"]


def test_a_key_straight_after_the_dialog_was_closed_marks_the_image_that_it_showed(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)
    page.locator(".look").first.click()
    page.keyboard.press("ArrowRight")

    page.evaluate(
        """() => {  // in one go, so that no event can come between the keys
            for (const key of ["Escape", "d", "k"]) {
                const event = new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true});
                document.activeElement.dispatchEvent(event);
            }
        }"""
    )
    page.locator(".look").first.click()  # after whatever the browser still had to do
    page.keyboard.press("Escape")
    page.keyboard.press("r")

    marks = page.eval_on_selector_all(".card", "all => all.map(card => card.dataset.mark)")
    assert marks[:3] == ["relabel", "drop", "keep"]


def test_undo_in_the_dialog_goes_back_to_the_image_that_was_marked(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)
    page.locator(".look").first.click()
    title = page.locator("#dialog-text").inner_text()
    page.keyboard.press("d")
    following = page.locator("#dialog-text").inner_text()

    page.keyboard.press("u")

    assert following != title
    assert page.locator("#dialog-text").inner_text() == title
    assert page.locator("#dialog [aria-pressed=true]").count() == 0
    assert page.locator(".card[data-mark]").count() == 0


def test_hostile_ids_and_classes_are_text_and_come_back_from_the_download(
    open_page: OpenPage, hostile: Path, tmp_path: Path
) -> None:
    page = open_page(write_report(hostile))
    rows = doubtful_rows(hostile)

    page.locator(".look").first.click()
    title = page.locator("#dialog-title").text_content()
    page.keyboard.press("Escape")
    for _ in rows:
        page.keyboard.press("r")
    marks = download_marks(page, tmp_path, {row["sample_id"] for row in rows})

    with (tmp_path / "marks.csv").open(newline="", encoding="utf-8-sig") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert [cell for cell in cells if re.match(r"\s*[=+@]|\s*-\D|[\t\r]", cell)] == []
    assert title == f"{rows[0]['label_name']}, or {rows[0]['nearest_label_name']}?"
    assert page.locator("b:text-is('bird')").count() == 0
    assert marks.samples == {
        row["sample_id"]: MarkedSample(
            row["sample_id"],
            Mark.RELABEL,
            row["nearest_label_name"].strip(),
            given_label=row["label_name"],
            order="doubtful",
        )
        for row in rows
    }


def test_a_browser_that_stores_nothing_says_so(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw 1; }})")
    page.reload()

    page.locator(".look").first.focus()
    page.keyboard.press("k")

    text = page.locator("#tray-text").inner_text()
    assert "1 checked" in text
    assert "This browser does not keep them: download before you leave." in text


def test_the_first_key_marks_the_first_card_that_is_seen_and_else_leads_to_it(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)
    cards = "[...document.querySelectorAll('.card')]"
    focused = f"{cards}.indexOf(document.activeElement.closest('.card'))"

    page.keyboard.press("d")  # at the top of the page, where the card cannot be seen
    led = page.evaluate(focused), page.locator("[data-mark]").count()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("d")

    assert led == (0, 0)
    assert page.locator(".card").first.get_attribute("data-mark") == "drop"
    assert page.evaluate(focused) == 1
