"""The pages of `difficulty explore` on CIFAR-10's test images."""

import io
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from difficulty_service.scores.marks import Mark, MarkedSample, read_marks

if TYPE_CHECKING:
    from playwright.sync_api import Page

Scored = Any  # of conftest.py, which tests cannot import
Exploring = Callable[[str, Path], AbstractContextManager[str]]
OpenAddress = Callable[[str], "Page"]
Row = dict[str, Any]

PAGE = 60
LARGEST_DIFFERENCE = 12  # of a pixel on average, which JPEG makes
REFUSED = "ERR_CONNECTION_REFUSED"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cifar10(score_cifar10: Callable[[str], Scored]) -> Scored:
    """All 10,000 images."""
    return score_cifar10("")


@pytest.fixture(scope="module")
def explored(cifar10: Scored, exploring: Exploring) -> Iterator[str]:
    """Address of the job of a score file that no other test has marked."""
    shutil.copy(cifar10.folder / "scores.parquet", cifar10.folder / "explored.parquet")
    with exploring("difficulty explore explored.parquet", cifar10.folder) as output:
        yield address_in(output)


@pytest.fixture
def page(explored: str, open_address: OpenAddress) -> Iterator["Page"]:
    """The images, none of which is marked before or after the test."""
    page = open_address(f"{explored}/images")
    yield page
    job = explored.rpartition("/")[2]
    marks = page.request.get(f"/v1/jobs/{job}/marks").json()["marks"]
    if marks:
        body = {"marks": [{"row": mark["row"], "decision": None} for mark in marks]}
        assert page.request.post(f"/v1/jobs/{job}/marks", data=body).ok


def address_in(output: str) -> str:
    return output.split()[1]


def shown_rows(page: "Page") -> list[int]:
    return [
        int(row) for row in page.locator(".card").evaluate_all("a => a.map(c => c.dataset.row)")
    ]


def press(page: "Page", *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def wait_for_marks(page: "Page", number: int) -> None:
    page.wait_for_selector(f"#tray-text:has-text('{number} checked')")


def stamps(page: "Page") -> list[str]:
    return [text for text in page.locator(".stamp").all_inner_texts() if text]


def is_hard_deer(row: Row) -> bool:
    return row["label_name"] == "deer" and 0.9 <= row["percentile"] <= 0.99


def is_cat_like_a_dog(row: Row) -> bool:
    names = (row["label_name"], row["nearest_label_name"])
    return names == ("cat", "dog") and row["label_margin"] > 5


@pytest.mark.parametrize(
    ("query", "key", "fits"),
    [
        ("?sort=hardest", lambda row: -row["rmd"], lambda _: True),
        ("?sort=easiest", lambda row: row["rmd"], lambda _: True),
        ("?sort=unusual", lambda row: -row["md_agnostic"], lambda _: True),
        ("?sort=file&label=ship", lambda _: 0, lambda row: row["label_name"] == "ship"),
        ("?sort=hardest&label=deer&pmin=90&pmax=99", lambda row: -row["rmd"], is_hard_deer),
        ("?label=cat&near=dog&margin=5", lambda row: -row["label_margin"], is_cat_like_a_dog),
        (
            "?q=ship_s_0002",
            lambda row: -row["label_margin"],
            lambda row: "ship_s_0002" in row["sample_id"],
        ),
    ],
)
def test_order_and_filters_are_what_the_score_file_says(
    page: "Page",
    cifar10: Scored,
    query: str,
    key: Callable[[Row], float],
    fits: Callable[[Row], bool],
) -> None:
    page.goto(page.url + query)

    matching = [row for row in range(len(cifar10.rows)) if fits(cifar10.rows[row])]
    expected = sorted(matching, key=lambda row: key(cifar10.rows[row]))
    assert len(expected) > 0
    assert shown_rows(page) == expected[:PAGE]
    assert page.locator(".results-head b").inner_text() == f"{len(expected):,}"


def test_every_picture_is_that_of_its_row(page: "Page", cifar10: Scored) -> None:
    page.locator(".more").scroll_into_view_if_needed()
    page.wait_for_load_state("networkidle")
    widths = page.locator(".card img").evaluate_all("all => all.map((each) => each.naturalWidth)")
    assert widths == [32] * PAGE

    for row in shown_rows(page):
        answer = page.request.get(f"{page.url}/{row}/picture")
        shown = np.asarray(Image.open(io.BytesIO(answer.body())).convert("RGB"), np.int64)
        stored = Image.open(io.BytesIO(cifar10.pictures[row])).convert("RGB")
        assert np.abs(shown - np.asarray(stored, np.int64)).mean() < LARGEST_DIFFERENCE


def test_going_back_from_an_image_restores_the_filters_the_pages_and_the_marks(
    page: "Page",
) -> None:
    page.get_by_label("Label", exact=True).fill("frog")
    page.keyboard.press("Tab")
    page.locator(".results-head b").get_by_text("1,000", exact=True).wait_for()
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
    page.locator(".results-head b").get_by_text("10,000", exact=True).wait_for()


def test_two_tabs_that_mark_the_same_image_at_once_agree(page: "Page", problems: list[str]) -> None:
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
    line = f"difficulty explore restarted.parquet --port {free_port()}"
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
        with page.expect_download() as download:
            page.get_by_role("link", name="Download marks").click()
        download.value.save_as(tmp_path / "marks.csv")
        page.close()

    nearest = rows[0]["nearest_label_name"]
    assert shown == [nearest, "drop"]
    assert after == [nearest, "drop", "keep"]
    assert read_marks(tmp_path / "marks.csv", {row["sample_id"] for row in rows}).samples == {
        rows[0]["sample_id"]: MarkedSample(Mark.RELABEL, nearest),
        rows[1]["sample_id"]: MarkedSample(Mark.DROP),
        rows[2]["sample_id"]: MarkedSample(Mark.KEEP),
    }
    assert [text for text in problems if REFUSED not in text] == []
    problems.clear()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
