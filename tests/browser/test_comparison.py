"""The page of two compared score files in a real browser, offline."""

from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.analyses.audit.comparison_page import ComparedFile, write_comparison
from difficulty_service.analyses.audit.score_comparison import columns_of, compare_scores
from difficulty_service.pages.stored_images import open_images
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.provenance import Provenance
from tests.browser.kinds import MakeScored, OpenPage
from tests.browser.reports import axe_findings

pytestmark = pytest.mark.analysis("audit")


MOVES = 8
HOSTILE = ("<b>bird</b>", '=cat,"1"\n\'', "dog\u202egod")


@pytest.fixture(scope="module")
def write_page(
    make_scored: MakeScored, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Compares scores with those of the same samples in reverse; gives the page."""

    def write(**names: object) -> Path:
        scores = read_scores(make_scored(**names), columns_of("rmd"))
        index = scores.table.column_names.index("rmd")
        reverse = scores.table.set_column(
            index, "rmd", scores.table["rmd"].take(list(range(90))[::-1])
        )
        other = ScoreFile(reverse, Provenance.of({"backbone": "<i>other</i>"}))
        images = open_images(scores.provenance, scores.table["sample_id"].to_pylist())
        path = tmp_path_factory.mktemp("comparison") / "comparison.html"
        comparison = compare_scores(scores, other, num_moves=MOVES)
        compared = [ComparedFile("<a>", scores), ComparedFile("b.parquet", other)]
        assert write_comparison(path, comparison, compared, images) == []
        return path

    return write


@pytest.fixture(scope="module")
def comparison(write_page: Callable[..., Path]) -> Path:
    return write_page()


def test_the_pictures_of_the_moved_images_load(open_page: OpenPage, comparison: Path) -> None:
    page = open_page(comparison)
    page.locator("#moves").scroll_into_view_if_needed()

    pictures = page.locator("#moves img")
    page.wait_for_function(
        "[...document.querySelectorAll('#moves img')].every((each) => each.naturalWidth > 0)"
    )

    assert pictures.count() == MOVES


def test_the_tenths_hold_every_image(open_page: OpenPage, comparison: Path) -> None:
    page = open_page(comparison)

    counts = page.locator("#tenths tbody td").all_inner_texts()

    assert len(counts) == 100
    assert sum(int(count) for count in counts if count) == 90


def test_hostile_names_are_text(open_page: OpenPage, write_page: Callable[..., Path]) -> None:
    page = open_page(write_page(classes=HOSTILE, ids="<img src=x onerror=alert(1)>{}.png".format))

    assert page.get_by_text("<img src=x onerror=alert(1)>").count() > 0
    assert page.locator("#classes").get_by_text("<b>bird</b>").count() == 1
    assert page.locator("#summary").get_by_text("<i>other</i>").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, comparison: Path, device: str, scheme: str) -> None:
    page = open_page(comparison, device, color_scheme=scheme)

    assert axe_findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_reads_without_javascript(open_page: OpenPage, comparison: Path) -> None:
    page = open_page(comparison, java_script_enabled=False)

    assert page.get_by_role("heading", level=1).inner_text().endswith("the same in both files.")
    assert not page.locator("#theme").is_visible()
