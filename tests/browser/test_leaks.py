"""The page of copies across splits in a real browser, offline."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from difficulty_service.analyses.leaks.leaks import find_leaks
from difficulty_service.analyses.leaks.page import write_leak_page
from difficulty_service.base.errors import as_keyword
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.splits import Split, open_split
from tests.browser.kinds import MakeScored, OpenPage
from tests.browser.reports import axe_findings
from tests.factories import store_of

pytestmark = pytest.mark.analysis("leaks")


HOSTILE = ("<b>bird</b>", '=cat,"1"\n\'', "dog\u202egod")
COPIES = 5


def set_of(scores: Path, features: torch.Tensor) -> Split:
    """The pictures of a score file with features that are given."""
    contents = read_scores(scores)
    known = contents.provenance
    store = store_of(
        scores.with_suffix(".features"),
        features,
        torch.tensor(contents.table["label"].to_pylist()),
        contents.table["sample_id"].to_pylist(),
        class_names=known.class_names,
        dataset=known.dataset,
        dataset_options={"id_column": "key"},
        fingerprint=known.fingerprint,
        backbone="builtin",
    )
    return open_split(store.folder)


@pytest.fixture(scope="module")
def write_page(
    make_scored: MakeScored, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Compares two sets of ninety pictures, of which five are copies; gives the page."""

    def write(**names: object) -> Path:
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(2, 90, 16, generator=generator)
        features[1, :COPIES] = features[0, 3 : 3 + COPIES]
        features[1, 0] = features[0, 1]  # a conflict, as each third picture is of the same class
        train, test = (
            set_of(make_scored(**names), features[0]),
            set_of(make_scored(**names), features[1]),
        )
        path = tmp_path_factory.mktemp("leaks") / "leaks.html"
        report = find_leaks(train, [test], 0.97)
        write_leak_page(path, report, (train, test), (), as_keyword)
        return path

    return write


@pytest.fixture(scope="module")
def leaks(write_page: Callable[..., Path]) -> Path:
    return write_page()


def test_the_pairs_are_side_by_side_and_their_pictures_load(
    open_page: OpenPage, leaks: Path
) -> None:
    page = open_page(leaks)
    page.locator("#test-1").scroll_into_view_if_needed()
    page.wait_for_function(
        "[...document.querySelectorAll('#test-1 img')].every((each) => each.naturalWidth > 0)"
    )

    pairs = page.locator("#test-1 .copies > li")

    assert pairs.count() == COPIES
    for pair in pairs.all():
        one, other = (picture.bounding_box() for picture in pair.locator("img").all())
        assert one["y"] == other["y"]
        assert one["x"] + one["width"] <= other["x"]
        assert pair.locator(".copy").all_inner_texts() == ["test", "training"]


def test_the_conflict_comes_first_and_names_both_labels(open_page: OpenPage, leaks: Path) -> None:
    page = open_page(leaks)

    first = page.locator("#test-1 .copies > li").first

    assert page.locator("#test-1 .differ").count() == 1
    assert first.locator(".labels").inner_text() == "bird ≠ cat"
    assert first.locator(".ids bdi").all_inner_texts() == ["0.png", "1.png"]


def test_hostile_names_are_text(open_page: OpenPage, write_page: Callable[..., Path]) -> None:
    page = open_page(write_page(classes=HOSTILE, ids="<img src=x onerror=alert(1)>{}.png".format))

    assert page.get_by_text("<img src=x onerror=alert(1)>").count() > 0
    assert page.locator("#test-1 .labels").get_by_text("<b>bird</b>").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, leaks: Path, device: str, scheme: str) -> None:
    page = open_page(leaks, device, color_scheme=scheme)

    assert axe_findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_reads_without_javascript(open_page: OpenPage, leaks: Path) -> None:
    page = open_page(leaks, java_script_enabled=False)

    heading = page.get_by_role("heading", level=1).inner_text()
    assert heading.startswith("5 of 90 images of")
    assert not page.locator("#theme").is_visible()
