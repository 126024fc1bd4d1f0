"""Two people review one job in the browser, and its owner decides where they disagree."""

from collections.abc import Iterator

import httpx2
import pytest

from api.settings import Settings
from api.storage.database import open_database
from api.storage.keys import create_key, revoke_key
from tests.browser.explorer.service import Explorer
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings

pytestmark = pytest.mark.usefixtures("no_marks")


@pytest.fixture
def colleague(explorer: Explorer) -> Iterator[tuple[str, str]]:
    """Id and secret of another key, which is revoked after the test, without its marks."""
    settings = Settings(data_dir=explorer.folder.parent / "data")
    with open_database(settings) as engine:
        key, secret = create_key(engine, "colleague", ["write"])
        yield key.id, secret
        headers = {"X-API-Key": secret}
        with httpx2.Client(base_url=explorer.url, headers=headers) as client:
            marks = [{"row": row, "decision": None} for row in range(3)]
            client.post(f"/v1/jobs/{explorer.job}/marks", json={"marks": marks})
        with explorer.client() as client:
            client.post(f"/v1/jobs/{explorer.job}/decisions", json={"marks": marks})
            client.delete(f"/v1/jobs/{explorer.job}/reviewers/{key.id}")
        revoke_key(engine, key.id)


def decide(explorer: Explorer, secret: str, kinds: tuple[str, ...]) -> None:
    marks = [{"row": row, "decision": {"mark": kind}} for row, kind in enumerate(kinds)]
    with httpx2.Client(base_url=explorer.url, headers={"X-API-Key": secret}) as client:
        client.post(f"/v1/jobs/{explorer.job}/marks", json={"marks": marks}).raise_for_status()


@pytest.mark.parametrize(("scheme", "scripts"), [("light", True), ("dark", True), ("light", False)])
def test_the_owner_shares_a_job_and_decides_where_the_reviewers_disagree(
    signed_in_page: OpenPage,
    explorer: Explorer,
    colleague: tuple[str, str],
    scheme: str,
    scripts: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    viewport = {"width": 390, "height": 800}
    page = signed_in_page(color_scheme=scheme, java_script_enabled=scripts, viewport=viewport)
    page.goto(f"/jobs/{explorer.job}/reviewers")

    page.get_by_label("Name or id of the key").fill(colleague[0])
    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_role("button", name="Share no longer with colleague").wait_for()
    decide(explorer, explorer.secret, ("keep", "keep", "drop"))
    decide(explorer, colleague[1], ("keep", "drop", "drop"))
    page.goto(f"/jobs/{explorer.job}/reviewers")

    lead = page.locator("main").inner_text()
    assert "3 images decided by two or more, 1 of them differently" in lead
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not scripts or axe_findings(page) == []

    page.get_by_role("link", name="Decide where they disagree").click()
    page.locator("#image-1 .look").click()
    said = page.get_by_role("region", name="Reviewers")
    assert "colleague" in said.inner_text()
    assert not scripts or axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    said.get_by_role("button", name="Drop").click()
    page.get_by_text("Final decision", exact=True).wait_for()

    page.goto(f"/jobs/{explorer.job}/images?mark=disagree")
    assert "No image matches" in page.locator("#results").inner_text()
