"""Tags are looked for by the form of a new job and reviewed by keyboard."""

from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.browser.explorer.service import Explorer
from tests.browser.kinds import Page

pytestmark = pytest.mark.analysis("tags")


IMAGES, WRONG = 90, 5
TAGS = ("blue", "green", "red")


@pytest.fixture
def tagged(explorer: Explorer) -> str:
    """A table below the root with pictures and their tags, of which the sixth has a wrong one."""
    has = np.random.default_rng(0).random((IMAGES, 3)) < 0.4
    has[WRONG] = (False, True, False)
    encoded = []
    for row in has:
        file = BytesIO()
        colour = tuple(int(200 * row[tag]) + 30 for tag in (2, 1, 0))
        Image.new("RGB", (32, 32), colour).save(file, "PNG")
        encoded.append(file.getvalue())
    has[WRONG, 2] = True
    tags = [[tag for tag, each in zip(TAGS, row, strict=True) if each] for row in has]
    ids = [f"{row:03}.png" for row in range(IMAGES)]
    table = pa.table({"key": ids, "image": encoded, "colours": tags})
    pq.write_table(table, explorer.folder / "tagged.parquet")
    return "tagged.parquet"


def test_a_job_about_tags_is_made_by_the_form_and_reviewed_by_keyboard(
    page: Page, explorer: Explorer, tagged: str
) -> None:
    page.goto("/")
    page.locator("html.scripts-run").wait_for()
    page.get_by_label("Folder or file below it").fill(tagged)
    page.get_by_text("Advanced", exact=True).click()
    page.get_by_text("How the dataset is read").click()
    page.get_by_text("Tags: any number for each sample").click()
    page.locator('[name="tags"]').fill("colours")
    page.locator('[name="id_column"]').fill("key")
    page.locator('[name="id_column"]').press("Enter")
    page.locator(".first-actions").wait_for()
    job = page.url.rpartition("/")[2]
    page.goto(f"/jobs/{job}/images?sort=doubtful")
    page.locator(".look[tabindex='0']").wait_for()

    card = page.locator(".card").first
    shown = card.inner_text()
    card.locator(".look").focus()
    for key in "rkd":
        page.keyboard.press(key)
    # The count after "undo" is that of the first two, too: the third has to be stored before.
    page.get_by_text("3 checked: 1 keep, 1 relabel, 1 drop.").first.wait_for()
    page.keyboard.press("u")
    page.get_by_text("2 checked: 1 keep, 1 relabel, 0 drop.").first.wait_for()
    with explorer.client() as client:
        (first, second) = client.get(f"/v1/jobs/{job}/marks").json()["marks"]

    assert "red" in shown
    by_id = {each["sample_id"]: (each["mark"], each["label"]) for each in (first, second)}
    assert by_id.pop(f"{WRONG:03}.png#red") == ("relabel", "not red")
    assert [mark for mark, _ in by_id.values()] == ["keep"]
    assert page.locator("[data-decision=misplaced]").count() == 0
