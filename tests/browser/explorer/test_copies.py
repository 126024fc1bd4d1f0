"""Copies are decided about on a page of the service, in light and dark and on a phone."""

import shutil

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings


@pytest.fixture
def copied(explorer: Explorer) -> str:
    """A job about images of which two are copies in one class, and two in different ones."""
    folder = explorer.folder / "copied"
    if not folder.exists():
        shutil.copytree(explorer.folder / "train", folder)
        shutil.copy(folder / "dog" / "d01.png", folder / "dog" / "again.png")
        shutil.copy(folder / "dog" / "d02.png", folder / "bird" / "another.png")
    return str(explorer.score("copied"))


@pytest.mark.parametrize(
    ("scheme", "label", "marks"),
    [("light", "dog", ["dog", "keep"]), ("dark", "bird", ["keep", "bird"])],
)
def test_copies_with_different_labels_get_one_of_them(
    signed_in_page: OpenPage, copied: str, scheme: str, label: str, marks: list[str]
) -> None:
    page = signed_in_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
    page.goto(f"/jobs/{copied}/copies")
    groups = page.locator(".copies > li")
    shown = [groups.nth(number).inner_text() for number in range(groups.count())]
    found = axe_findings(page)

    page.get_by_role("button", name=f"All are {label}").click()
    page.get_by_text(f"1 group: all are {label}.").wait_for()
    folded = axe_findings(page)
    page.locator(".copies summary").click()
    page.locator(".copies .copy").get_by_text(label, exact=True).wait_for()

    assert len(shown) == 2
    assert "bird ≠ dog" in shown[0]
    assert page.locator(".copies .copy").all_inner_texts() == marks
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found + folded + axe_findings(page) == []
    page.get_by_role("button", name="Undo").first.click()
    page.get_by_role("button", name=f"All are {label}").wait_for()
