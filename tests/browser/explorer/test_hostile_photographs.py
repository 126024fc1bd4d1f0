"""Real photographs under names that would break a careless page, scored by a real worker."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page

Error = pytest.importorskip("playwright.sync_api").Error


PHOTOGRAPHS = 2000
CLASSES = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)<",
    "{{ 7 * 7 }}",
    "'=1+1'",
    '"quoted" & more',
    "\u202egod",
    "plain",
    "ж猫",
    "a b%20c",
    "javascript:alert(3)",
)
FOLDER = "<i>photographs<"
PAGES = ("", "/images", "/images?sort=hardest", "/classes", "/pairs", "/copies", "/map", "/errors")


@pytest.fixture
def photographs(explorer: Explorer, shared: Path) -> str:
    """A folder below the root with CIFAR-10 images, whose classes and files have hostile names."""
    dataset = shared / "data" / "cifar10_test.parquet"
    if not dataset.exists():
        pytest.skip(f"there is no {dataset}")
    folder = explorer.folder / FOLDER
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
    table = pq.read_table(dataset, columns=["image", "label"]).slice(0, PHOTOGRAPHS)
    for number, row in enumerate(table.to_pylist()):
        name = f"{number}<b onclick=alert(4)>'\"&.png"
        (folder / CLASSES[row["label"]] / name).write_bytes(row["image"])
    return FOLDER


@pytest.mark.long
def test_their_progress_moves_and_every_page_shows_their_names_as_text(
    page: Page, explorer: Explorer, photographs: str
) -> None:
    page.goto("/")
    page.get_by_label("Folder or file below it").fill(photographs)
    page.get_by_role("button", name="Score", exact=True).click()
    page.get_by_text(re.compile(f"of {PHOTOGRAPHS:,} images")).wait_for()
    values = progress_of(page)
    page.locator(".first-actions").wait_for()
    job = page.url

    found = {}
    for address in PAGES:
        page.goto(job + address)
        page.wait_for_load_state("networkidle")
        found[address] = page.locator(
            "img[src='x'], [onclick], [onerror], a[href^='javascript:'], main i, main bdi > *"
        ).count()
    listed = page_of_classes(page, job)
    page.goto(f"{job}/images/0")
    page.wait_for_load_state("networkidle")  # its job is deleted below

    assert len(values) > 1
    assert values == sorted(values)
    assert found == dict.fromkeys(PAGES, 0)
    assert sorted(listed) == sorted(CLASSES)
    assert "<b onclick=alert(4)>'\"&.png" in page.locator(".sample-id").inner_text()
    assert page.locator(".crumb").inner_text() == f"photos/{FOLDER}"
    with explorer.client() as client:
        client.delete(f"/v1/jobs/{job.rpartition('/')[2]}").raise_for_status()


def progress_of(page: Page) -> list[float]:
    """The values that the progress of the open job has until its summary appears."""
    values: list[float] = []
    while page.locator("#progress").count():
        try:  # one call, because the bar may disappear between two
            bars = page.locator("#progress progress").evaluate_all(
                "bars => bars.map(bar => bar.value)"
            )
        except Error as error:  # the page opens again when the job has ended
            if "because of a navigation" not in error.message:
                raise
            continue
        value = bars[0] if bars else 0.0
        if not values or value != values[-1]:
            values.append(value)
        page.wait_for_timeout(100)
    return values


def page_of_classes(page: Page, job: str) -> list[str]:
    page.goto(f"{job}/classes")
    return page.locator("tbody th").all_inner_texts()
