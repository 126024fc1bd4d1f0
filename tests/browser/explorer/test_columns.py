"""The owner of a job attaches a table of columns on its page, in a real browser."""

import json
from pathlib import Path

import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings

CAMERA = '<img src=x onerror="alert(1)">'
LONG = "x" * 300

pytestmark = pytest.mark.usefixtures("no_marks")


@pytest.fixture
def table(explorer: Explorer, tmp_path: Path) -> Path:
    """A table of the samples of the job, and one without a sample."""
    rows = [
        {"sample_id": row["sample_id"], CAMERA: f"{row['label']}", LONG: number / 8, "note": None}
        for number, row in enumerate(explorer.scores)
    ]
    path = tmp_path / f"{'long name ' * 9}.jsonl"
    path.write_text("\n".join(map(json.dumps, [*rows, rows[0] | {"sample_id": "other"}])))
    return path


@pytest.mark.parametrize("look", ["light", "dark", "without scripts"])
def test_a_table_is_attached_filters_the_images_and_is_removed(
    signed_in_page: OpenPage, explorer: Explorer, table: Path, problems: list[str], look: str
) -> None:
    scripts = look != "without scripts"
    page = signed_in_page(
        color_scheme="dark" if look == "dark" else "light",
        java_script_enabled=scripts,
        viewport={"width": 390, "height": 800},
    )
    page.goto(f"/jobs/{explorer.job}/images")
    page.get_by_role("link", name="More", exact=True).first.click()
    page.get_by_role("link", name="Columns", exact=True).click()

    page.get_by_label("A table as CSV").set_input_files(table)
    page.get_by_label("Columns to show").fill("lens")
    page.get_by_role("button", name="Attach").click()
    problem = page.get_by_role("alert").filter(has_text="lens").inner_text()
    page.get_by_label("A table as CSV").set_input_files(table)
    page.get_by_label("Columns to show").fill("")
    page.get_by_role("button", name="Attach").click()
    page.get_by_role("button", name=f"Remove {table.name}").wait_for()

    assert "has no column 'lens'" in problem
    assert "1 of 121 ids of the table have no sample" in page.get_by_role("region").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not scripts or axe_findings(page) == []

    page.get_by_role("link", name="Filter by them").click()
    filters = page.locator(".side-box:not([open]) > summary")
    if filters.count():
        filters.click()
    page.locator(".column-box").get_by_label("1").check()
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**is.**")
    page.get_by_text("40 of 120 images").wait_for()

    page.goto(f"/jobs/{explorer.job}/map")
    assert page.get_by_label(CAMERA).count() == 1
    page.goto(f"/jobs/{explorer.job}/columns")
    page.get_by_role("button", name=f"Remove {table.name}").click()
    page.get_by_text("No table is attached to this job.").wait_for()
    assert [problem for problem in problems if "422" not in problem] == []
    problems.clear()
