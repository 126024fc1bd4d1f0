"""The order of the labels to check in a report, and a name for a class that nobody suggested."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.reports.sections import Order
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance, RandomCheck
from difficulty_service.scores.random_checks import describe_check
from tests.browser.kinds import OpenPage, Page
from tests.browser.reports import axe_findings, write_report

OpenReport = Callable[[Order], Page]


@pytest.fixture
def open_report(open_page: OpenPage, scored: Path, tmp_path: Path) -> OpenReport:
    """Opens a report of the scores in an order."""

    def open_it(order: Order) -> Page:
        path = tmp_path / "report.html"
        make_report(read_reported(scored), path, ReportOptions(order=order))
        return open_page(path)

    return open_it


def ids_on(page: Page) -> list[str]:
    cards = "JSON.parse(document.getElementById('review-data').textContent).cards"
    return list(page.evaluate(f"{cards}.map(({{ id }}) => id)"))


def test_the_hardest_images_come_first_where_they_are_asked_for(
    open_report: OpenReport, scored: Path
) -> None:
    page = open_report("hardest")

    rows = read_scores(scored, ["sample_id", "rmd"]).table.drop_null()
    hardest = rows.sort_by([("rmd", "descending")])["sample_id"].to_pylist()
    assert ids_on(page) == hardest[: len(ids_on(page))]
    assert page.locator(".card:visible").count() == len(ids_on(page)) > 45


def test_marks_of_a_random_choice_say_so_unless_many_are_marked_at_once(
    open_report: OpenReport, scored: Path, tmp_path: Path
) -> None:
    page = open_report("random")
    ids = ids_on(page)
    page.locator(".look").first.focus()
    for key in ("k", "d", "k", "k", "d", "Shift+ArrowRight", "Shift+ArrowRight", "k"):
        page.keyboard.press(key)
    said = page.locator("#tray-text").inner_text()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download marks").click()
    download.value.save_as(tmp_path / "marks.csv")

    marks = read_marks(tmp_path / "marks.csv", set(ids)).samples
    assert len(ids) > 45
    assert ids != sorted(ids)
    assert {each: (mark.mark, mark.order) for each, mark in marks.items()} == {
        **dict.fromkeys((ids[0], ids[2], ids[3]), (Mark.KEEP, "random")),
        **dict.fromkeys((ids[1], ids[4]), (Mark.DROP, "random")),
        **dict.fromkeys(ids[5:8], (Mark.KEEP, "")),
    }
    num_samples = len(read_scores(scored, ["sample_id"]).table)
    assert (
        describe_check(RandomCheck(checked=5, wrong=2, among=num_samples, since=0, beside=3))
        in said
    )


def test_any_class_can_be_named(open_report: OpenReport, tmp_path: Path) -> None:
    page = open_report("random")
    ids = ids_on(page)
    page.locator(".look").first.click()
    page.keyboard.press("/")
    page.keyboard.type("IR")  # in the middle, whatever the case
    page.locator("#other-options").get_by_role("option", name="bird").wait_for()
    page.keyboard.press("Enter")
    following = page.locator("#dialog-place").inner_text()
    page.keyboard.press("k")  # the box does not keep the keys
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download marks").click()
    download.value.save_as(tmp_path / "marks.csv")

    with (tmp_path / "marks.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert [(row["sample_id"], row["mark"], row["label"]) for row in rows] == [
        (ids[0], "relabel", "bird"),
        (ids[1], "keep", ""),
    ]
    assert following.startswith("2 of ")


def test_texts_are_called_texts(open_page: OpenPage, scored: Path, tmp_path: Path) -> None:
    contents = read_scores(scored)
    provenance = contents.provenance.updated(Provenance(modality="text"))
    write_scores(tmp_path / "scores.parquet", contents.table, provenance)
    reported = read_reported(tmp_path / "scores.parquet")
    make_report(reported, tmp_path / "doubtful.html", ReportOptions())
    make_report(reported, tmp_path / "hardest.html", ReportOptions(order="hardest"))

    cut = open_page(tmp_path / "doubtful.html").locator("#cut-count").inner_text()
    page = open_page(tmp_path / "hardest.html")
    page.locator(f".card:has([data-row='{len(contents.table) - 1}']) .look").click()

    assert cut == "45 texts, 50.0 % of all"
    assert "the hardest of all texts" in page.locator("#dialog-text").inner_text()


def test_of_classes_that_differ_in_case_alone_the_one_that_is_typed_is_taken(
    open_page: OpenPage, make_scored: Callable[..., Path]
) -> None:
    page = open_page(write_report(make_scored(("Dog", "dog", "bird"))))

    card = page.locator(".card[data-given=bird]").first
    card.locator(".look").click()
    page.get_by_label("It is").fill("dog")
    listed = page.locator("#other-options").get_by_role("option").all_inner_texts()
    page.get_by_label("It is").press("Enter")

    assert listed == ["dog", "Dog"]
    assert card.locator(".stamp").text_content() == "dog"


def test_a_class_that_does_not_exist_is_refused(open_report: OpenReport) -> None:
    page = open_report("doubtful")
    page.locator(".look").first.click()

    page.get_by_label("It is").fill("brid")
    page.get_by_label("It is").press("Enter")

    message = "document.getElementById('other').validationMessage"
    assert page.evaluate(message) == "No class has this in its name."
    assert page.locator("#dialog-place").inner_text().startswith("1 of ")
    assert page.locator(".card[data-mark]").count() == 0


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_the_open_dialog_can_be_used_by_everybody(
    open_page: OpenPage, report: Path, device: str
) -> None:
    page = open_page(report, device)

    page.locator(".look").first.click()

    assert axe_findings(page) == []
