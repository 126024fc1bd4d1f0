"""The page of what is new and hard in a version of a dataset, in a real browser, offline."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from difficulty_service.analyses.versions.changes import find_changes
from difficulty_service.analyses.versions.page import write_change_page
from difficulty_service.base.errors import as_keyword
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.splits import Split, open_split
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings
from tests.factories import store_of

pytestmark = pytest.mark.analysis("versions")

HOSTILE = ("<b>bird</b>", '=cat,"1"\n\'', "dog\u202egod")
OLD, RELABELLED = 84, 4


@pytest.fixture(scope="module")
def write_page(
    make_scored: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Compares ninety pictures with a version that lacks six and labels four another way."""

    def write(**names: object) -> Path:
        scores = make_scored(**names)
        known, folder = read_scores(scores), tmp_path_factory.mktemp("changes")
        ids, labels = (known.table[name].to_pylist() for name in ("sample_id", "label"))
        features = torch.randn(len(ids), 8, generator=torch.Generator().manual_seed(0))

        def version(name: str, number: int, labels: list[int]) -> Split:
            store = store_of(
                folder / name,
                features[:number],
                torch.tensor(labels[:number]),
                ids[:number],
                class_names=known.provenance.class_names,
                dataset=known.provenance.dataset,
                dataset_options={"id_column": "key"},
                fingerprint=name,
                backbone="builtin",
            )
            return open_split(store.folder)

        before = [(label + 1) % 3 for label in labels[:RELABELLED]] + labels[RELABELLED:]
        old, new = version("old", OLD, before), version("new", len(ids), labels)
        scored = known.table.select(["sample_id", "rmd"]).rename_columns(["sample_id", "score"])
        report = find_changes(old, new, permutations=9, scores=scored)
        write_change_page(folder / "new.html", report, (old, new), None, as_keyword)
        return folder / "new.html"

    return write


@pytest.fixture(scope="module")
def changes(write_page: Callable[..., Path]) -> Path:
    return write_page()


def test_new_and_relabelled_pictures_load(open_page: OpenPage, changes: Path) -> None:
    page = open_page(changes)

    for section, number in (("#new", 90 - OLD), ("#relabelled", RELABELLED)):
        page.locator(section).scroll_into_view_if_needed()
        page.wait_for_function(
            "(section) => [...document.querySelectorAll(`${section} img`)]"
            ".every((each) => each.complete && each.naturalWidth > 0)",
            arg=section,
        )
        assert page.locator(f"{section} img").count() == number
    assert page.get_by_role("heading", level=1).inner_text() == (
        "6 of 90 images are new, 4 have another label."
    )
    assert page.locator("#relabelled .differ .labels").first.inner_text() in {
        f"{one} → {other}" for one in ("bird", "cat", "dog") for other in ("bird", "cat", "dog")
    }


def test_the_sections_are_reached_by_their_links(open_page: OpenPage, changes: Path) -> None:
    page = open_page(changes)

    page.get_by_role("link", name="Classes").click()

    assert page.url.endswith("#classes")
    page.locator("#classes table").get_by_text("all images").wait_for()


def test_hostile_names_are_text(open_page: OpenPage, write_page: Callable[..., Path]) -> None:
    page = open_page(write_page(classes=HOSTILE, ids="<img src=x onerror=alert(1)>{}.png".format))

    assert page.get_by_text("<img src=x onerror=alert(1)>").count() > 0
    assert page.locator("#relabelled").get_by_text("<b>bird</b>").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing(open_page: OpenPage, changes: Path, device: str, scheme: str) -> None:
    page = open_page(changes, device, color_scheme=scheme)

    assert axe_findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
