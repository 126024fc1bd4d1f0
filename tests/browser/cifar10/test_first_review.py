"""A person who has read nothing goes from a dataset to a cleaned list by what is printed."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

Scored = Any  # of conftest.py, which tests cannot import

MOST_SECONDS = 900
LISTED = 240  # images whose labels a report asks to check

pytestmark = pytest.mark.slow


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


@pytest.fixture(scope="module")
def cifar10(score_cifar10: Callable[[str], Scored]) -> Scored:
    """Every fifth image, with the report."""
    return score_cifar10("--report report.html --limit 2000")


@pytest.fixture
def steps(cifar10: Scored, record_property: Callable[[str, object], None]) -> Steps:
    return Steps(cifar10.seconds, record_property)


def tab_to(page: "Page", selector: str) -> None:
    """Presses Tab until an element has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"Tab does not reach {selector}")


def download(page: "Page", folder: Path, selector: str) -> None:
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
    assert {row["image"]["bytes"] for row in cleaned} <= set(cifar10.pictures)


def test_from_the_report_to_a_cleaned_list_takes_two_commands(
    cifar10: Scored,
    steps: Steps,
    open_page: Callable[..., "Page"],
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
        line = printed(r"^to apply the marks .*: (difficulty clean .*)$", cifar10.output)
        run_words(line, cifar10.folder)

    check_cleaned(cifar10)
    steps.check()


def test_from_the_explorer_to_a_cleaned_list_takes_three_commands(
    cifar10: Scored,
    steps: Steps,
    exploring: Callable[[str, Path], AbstractContextManager[str]],
    open_address: Callable[[str], "Page"],
    run_words: Callable[[str, Path], str],
) -> None:
    line = printed(r"^ +(difficulty explore .*)$", cifar10.output)

    with exploring(line, cifar10.folder) as output:
        with steps.step("open the explorer"):
            page = open_address(printed(r"^Open (\S+) in a browser", output))
        with steps.step("mark three images"):
            tab_to(page, ".first-actions .solid")
            page.keyboard.press("Enter")
            page.locator(".card").first.wait_for()
            page.wait_for_load_state("networkidle")
            for key in ("ArrowRight", "r", "d", "k"):
                page.keyboard.press(key)
            page.locator("#tray-text", has_text="3 checked").wait_for()
        with steps.step("download the marks"):
            download(page, cifar10.folder, ".tray .solid")
    with steps.step("clean"):
        run_words(printed(r"(difficulty clean .*)$", output), cifar10.folder)

    check_cleaned(cifar10)
    steps.check()


def test_the_pictures_order_and_filters_of_the_report_are_those_of_the_score_file(
    cifar10: Scored, open_page: Callable[..., "Page"]
) -> None:
    page = open_page(cifar10.folder / "report.html")
    doubtful = [row for row in cifar10.rows if row["label_margin"] > 0]
    listed = sorted(doubtful, key=lambda row: -row["label_margin"])[:LISTED]

    # Pictures are only decoded once they are in view.
    widths = []
    for picture in page.locator("main img:visible").all()[: LISTED + 1]:
        picture.scroll_into_view_if_needed()
        widths.append(picture.evaluate("i => i.decode().then(() => i.naturalWidth)"))
    everything = captions(page)
    page.get_by_label("Label", exact=True).select_option("cat")
    cats = captions(page)

    assert len(widths) > LISTED
    assert set(widths) == {32}
    assert everything == [caption(row) for row in listed]
    assert cats == [caption(row) for row in listed if row["label_name"] == "cat"]
    assert cats


def captions(page: "Page") -> list[str]:
    """What is written below the cards that are shown."""
    shown = page.locator(".card:visible .caption").all_inner_texts()
    return [" ".join(text.split()) for text in shown]


def caption(row: dict[str, Any]) -> str:
    return f"{row['label_name']} {row['label_margin']:.1f} → looks like {row['nearest_label_name']}"
