"""A person who has read nothing goes from CIFAR-10's test images to a cleaned list.

What is printed leads there, by the report or by the explorer, which show what the score file says.
"""

import io
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from difficulty_service.marks.files import read_marks
from difficulty_service.marks.mark_kinds import Mark
from tests.browser.kinds import Exploring, OpenAddress, Page, Scored
from tests.ports import unused_port

Row = dict[str, Any]

PAGE = 60
LARGEST_DIFFERENCE = 12  # of a pixel on average, which JPEG makes
REFUSED = "ERR_CONNECTION_REFUSED"
MOST_SECONDS = 900
LISTED = 240  # images whose labels a report asks to check
# Pictures are only decoded once they are in view.
WIDTHS = """
async (pictures, number) => {
    const widths = [];
    for (const picture of pictures.slice(0, number)) {
        picture.scrollIntoView();
        await picture.decode();
        widths.push(picture.naturalWidth);
    }
    return widths;
}
"""


class Steps:
    """Seconds of each step, shown at the end and kept in the record of the tests."""

    def __init__(self, first: float, record: Callable[[str, object], None]) -> None:
        self.seconds = {"score": first}
        self.record = record

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Takes the time of what is done inside."""
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun

    def check(self) -> None:
        """Shows the times; fails only if something hung."""
        for name, seconds in self.seconds.items():
            self.record(f"seconds to {name}", round(seconds, 1))
        print(", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items()))  # noqa: T201
        assert sum(self.seconds.values()) < MOST_SECONDS


@pytest.fixture
def steps(cifar10: Scored, record_property: Callable[[str, object], None]) -> Steps:
    return Steps(cifar10.seconds, record_property)


def tab_to(page: Page, selector: str) -> None:
    """Presses Tab until an element has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"Tab does not reach {selector}")


def download(page: Page, folder: Path, selector: str) -> None:
    """Downloads the marks by the keyboard alone, to where the person works."""
    page.locator(selector).focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "marks.csv"
    download.value.save_as(folder / "marks.csv")


def printed(pattern: str, output: str) -> str:
    """The part of an output that a person copies."""
    found = re.search(pattern, output, re.MULTILINE)
    assert found, f"{pattern} is not printed"
    return found[1]


def check_cleaned(cifar10: Scored) -> None:
    """The list differs from the dataset in the label of one image and has lost another."""
    relabelled, dropped = sorted(cifar10.rows, key=lambda row: -row["label_margin"])[:2]
    expected = {row["sample_id"]: row["label_name"] for row in cifar10.rows}
    expected[relabelled["sample_id"]] = relabelled["nearest_label_name"]
    del expected[dropped["sample_id"]]
    columns = ["sample_id", "label", "image"]
    cleaned = pq.read_table(cifar10.folder / "cleaned.parquet", columns=columns).to_pylist()
    assert {row["sample_id"]: row["label"] for row in cleaned} == expected
    assert {row["image"]["bytes"] for row in cleaned} <= set(cifar10.pictures.values())


def test_from_the_report_to_a_cleaned_list_takes_two_commands(
    cifar10: Scored,
    steps: Steps,
    open_page: Callable[..., Page],
    run_words: Callable[[str, Path], str],
) -> None:

    with steps.step("open the report"):
        name = printed(r"^the report is in (\S+) .*open it in a browser$", cifar10.output)
        page = open_page(cifar10.folder / name)
    with steps.step("mark three images"):
        tab_to(page, ".look")
        for key in "rdk":
            page.keyboard.press(key)
    with steps.step("download the marks"):
        download(page, cifar10.folder, "#download")
    with steps.step("clean"):
        line = printed(r"^ +(difficulty clean .*)$", cifar10.output)
        run_words(line, cifar10.folder)

    check_cleaned(cifar10)
    steps.check()


def test_from_the_explorer_to_a_cleaned_list_takes_three_commands(
    cifar10: Scored,
    steps: Steps,
    exploring: Callable[[str, Path], AbstractContextManager[str]],
    open_address: Callable[[str], Page],
    run_words: Callable[[str, Path], str],
) -> None:
    line = printed(r"^ +(difficulty explore .*)$", cifar10.output)

    with exploring(line, cifar10.folder) as output:
        with steps.step("open the explorer"):
            page = open_address(printed(r"^Open (\S+) in a browser", output))
        with steps.step("mark three images"):
            tab_to(page, ".first-actions .link")
            page.keyboard.press("Enter")
            page.locator(".card").first.wait_for()
            page.wait_for_load_state("networkidle")
            for key in ("ArrowRight", "r", "d", "k"):
                page.keyboard.press(key)
            page.locator("#tray-text", has_text="3 checked").wait_for()
    with steps.step("clean"):
        run_words(printed(r"(difficulty clean .*)$", output), cifar10.folder)

    check_cleaned(cifar10)
    steps.check()


def test_the_pictures_order_and_filters_of_the_report_are_those_of_the_score_file(
    cifar10: Scored, open_page: Callable[..., Page]
) -> None:
    page = open_page(cifar10.folder / "report.html")
    doubtful = [row for row in cifar10.rows if row["label_margin"] > 0]
    listed = sorted(doubtful, key=lambda row: -row["label_margin"])[:LISTED]

    widths = page.locator("main img:visible").evaluate_all(WIDTHS, LISTED + 1)
    everything = captions(page)
    page.get_by_label("Label", exact=True).select_option("cat")
    cats = captions(page)

    assert len(widths) > LISTED
    assert set(widths) == {32}
    assert everything == [caption(row) for row in listed]
    assert cats == [caption(row) for row in listed if row["label_name"] == "cat"]
    assert cats


def captions(page: Page) -> list[str]:
    """What is written below the cards that are shown."""
    shown = page.locator(".card:visible .caption").all_inner_texts()
    return [" ".join(text.split()) for text in shown]


def caption(row: dict[str, Any]) -> str:
    return f"{row['label_name']} {row['label_margin']:.1f} → looks like {row['nearest_label_name']}"


@pytest.fixture(scope="module")
def explored(cifar10: Scored, exploring: Exploring) -> Iterator[str]:
    """Address of the job of a score file that no other test has marked."""
    shutil.copy(cifar10.folder / "scores.parquet", cifar10.folder / "explored.parquet")
    with exploring("difficulty explore explored.parquet", cifar10.folder) as output:
        yield address_in(output)


@pytest.fixture
def page(explored: str, open_address: OpenAddress) -> Iterator[Page]:
    """All images, none of which is marked before or after the test."""
    page = open_address(f"{explored}/images?sort=doubtful")
    yield page
    job = explored.rpartition("/")[2]
    marks = page.request.get(f"/v1/jobs/{job}/marks").json()["marks"]
    if marks:
        body = {"marks": [{"row": mark["row"], "decision": None} for mark in marks]}
        assert page.request.post(f"/v1/jobs/{job}/marks", data=body).ok


def address_in(output: str) -> str:
    return output.split()[1]


def shown_rows(page: Page) -> list[int]:
    return [
        int(row) for row in page.locator(".card").evaluate_all("a => a.map(c => c.dataset.row)")
    ]


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def wait_for_marks(page: Page, number: int) -> None:
    page.wait_for_selector(f"#tray-text:has-text('{number} checked')")


def stamps(page: Page) -> list[str]:
    return [text for text in page.locator(".stamp").all_inner_texts() if text]


def is_hard_deer(row: Row) -> bool:
    return row["label_name"] == "deer" and 0.9 <= row["percentile"] <= 0.99


def is_cat_like_a_dog(row: Row) -> bool:
    names = (row["label_name"], row["nearest_label_name"])
    return names == ("cat", "dog") and row["label_margin"] > 5


ORDERS: list[tuple[str, Callable[[Row], float], Callable[[Row], bool]]] = [
    ("?sort=hardest", lambda row: -row["rmd"], lambda _: True),
    ("?sort=easiest", lambda row: row["rmd"], lambda _: True),
    ("?sort=unusual", lambda row: -row["md_agnostic"], lambda _: True),
    ("?sort=file&label=ship", lambda _: 0, lambda row: row["label_name"] == "ship"),
    ("?sort=hardest&label=deer&pmin=90&pmax=99", lambda row: -row["rmd"], is_hard_deer),
    ("?label=cat&near=dog&margin=5", lambda row: -row["label_margin"], is_cat_like_a_dog),
    (
        "?q=ship_s_000",
        lambda row: -row["label_margin"],
        lambda row: "ship_s_000" in row["sample_id"],
    ),
]


def test_order_and_filters_are_what_the_score_file_says(page: Page, cifar10: Scored) -> None:
    address = page.url.partition("?")[0]
    for query, key, fits in ORDERS:
        page.goto(address + query)

        matching = [row for row in range(len(cifar10.rows)) if fits(cifar10.rows[row])]
        expected = sorted(matching, key=[key(row) for row in cifar10.rows].__getitem__)
        assert len(expected) > 0, query
        assert shown_rows(page) == expected[:PAGE], query
        assert page.locator(".results-head b").inner_text() == f"{len(expected):,}", query


def test_every_picture_is_that_of_its_row(page: Page, cifar10: Scored) -> None:
    page.locator(".more").scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")
    widths = page.locator(".card img").evaluate_all("all => all.map((each) => each.naturalWidth)")
    assert widths == [32] * PAGE

    address = page.url.partition("?")[0]
    for row in shown_rows(page):
        answer = page.request.get(f"{address}/{row}/picture")
        shown = np.asarray(Image.open(io.BytesIO(answer.body())).convert("RGB"), np.int64)
        stored = Image.open(io.BytesIO(cifar10.pictures[cifar10.rows[row]["sample_id"]])).convert(
            "RGB"
        )
        assert np.abs(shown - np.asarray(stored, np.int64)).mean() < LARGEST_DIFFERENCE


def test_going_back_from_an_image_restores_the_filters_the_pages_and_the_marks(page: Page) -> None:
    page.get_by_label("Label", exact=True).fill("frog")
    page.keyboard.press("Tab")
    page.locator(".results-head b").get_by_text("200", exact=True).wait_for()
    before = shown_rows(page)
    page.locator(".look").first.focus()
    press(page, "d")
    wait_for_marks(page, 1)

    press(page, "Enter")
    page.locator(".one-image").wait_for()
    page.go_back()
    page.locator("#results .card").nth(PAGE - 1).wait_for()

    assert shown_rows(page) == before
    assert page.get_by_label("Label", exact=True).input_value() == "frog"
    assert stamps(page) == ["drop"]
    page.go_back()
    page.locator(".results-head b").get_by_text("2,000", exact=True).wait_for()


def test_two_tabs_that_mark_the_same_image_at_once_agree(page: Page, problems: list[str]) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    for each, key in ((page, "k"), (other, "d")):
        each.locator(".look").first.focus()
        each.keyboard.press(key)

    wait_for_marks(page, 1)
    wait_for_marks(other, 1)
    page.wait_for_load_state("networkidle")
    other.wait_for_load_state("networkidle")

    shown = stamps(page)
    page.reload()
    assert shown == stamps(other) == stamps(page)
    assert len(shown) == 1
    assert [text for text in problems if "409" not in text] == []
    problems.clear()


def test_marks_survive_a_restart_while_the_page_is_open_and_are_read_by_clean(
    cifar10: Scored,
    exploring: Exploring,
    open_address: OpenAddress,
    problems: list[str],
    tmp_path: Path,
) -> None:
    shutil.copy(cifar10.folder / "scores.parquet", cifar10.folder / "restarted.parquet")
    line = f"difficulty explore restarted.parquet --port {unused_port()}"
    with exploring(line, cifar10.folder) as output:
        page = open_address(f"{address_in(output)}/images")
        rows = [cifar10.rows[row] for row in shown_rows(page)[:3]]
        press(page, "ArrowRight", "r", "d")
        wait_for_marks(page, 2)
    press(page, "k")
    page.get_by_text("The service does not answer. The mark is not stored.").wait_for()
    shown = stamps(page)

    with exploring(line, cifar10.folder):
        press(page, "ArrowLeft", "k")
        wait_for_marks(page, 3)
        page.reload()
        after = stamps(page)
        page.get_by_text("Downloads").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Decisions, CSV").click()
        download.value.save_as(tmp_path / "marks.csv")
        page.close()

    nearest = rows[0]["nearest_label_name"]
    assert shown == [nearest, "drop"]
    assert after == [nearest, "drop", "keep"]
    marks = read_marks(tmp_path / "marks.csv", {row["sample_id"] for row in rows}).samples
    choices = ((Mark.RELABEL, nearest), (Mark.DROP, None), (Mark.KEEP, None))
    said = {name: (each.choice, each.given_label, each.order) for name, each in marks.items()}
    assert said == {
        row["sample_id"]: (choice, row["label_name"], "doubtful")
        for row, choice in zip(rows, choices, strict=True)
    }
    assert {each.round for each in marks.values()} == {1}
    assert [text for text in problems if REFUSED not in text] == []
    problems.clear()
