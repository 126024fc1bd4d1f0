"""An upload is cut off by the network or by the person, and goes on where it was."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browser.kinds import Page

PART = 8 << 20
BYTES_PER_SECOND = 4_000_000


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two classes in more than two parts of an upload."""
    generator = np.random.default_rng(1)
    path = tmp_path / "large.zip"
    with zipfile.ZipFile(path, "w") as file:
        for number in range(24):
            pixels = generator.integers(0, 256, (512, 512, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "noise.bmp")
            file.write(tmp_path / "noise.bmp", f"{'cat' if number % 2 else 'dog'}/{number}.bmp")
    assert path.stat().st_size > 2 * PART
    return path


@pytest.fixture
def offsets(page: Page) -> list[int]:
    """Where each part that the page sends begins."""
    found: list[int] = []
    page.on(
        "request",
        lambda request: (
            found.append(int(request.url.rpartition("offset=")[2]))
            if request.method == "PUT"
            else None
        ),
    )
    return found


@pytest.fixture
def set_network(page: Page) -> Callable[..., None]:
    """Sets the network of the page, which is as slow as a person's: there or away."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")

    def set_state(*, offline: bool) -> None:
        state = {"offline": offline, "latency": 0, "downloadThroughput": -1}
        speed = {"uploadThroughput": BYTES_PER_SECOND}
        session.send("Network.emulateNetworkConditions", state | speed)

    set_state(offline=False)
    return set_state


def begin(page: Page, archive: Path) -> None:
    """Chooses the file on the form for a new job."""
    page.goto("/")
    page.get_by_label("Upload a file").check()
    page.locator("#file").set_input_files(archive)


def second_part_begins(page: Page) -> None:
    page.get_by_text("large.zip: 8.4 of 18.9 MB").wait_for()
    page.wait_for_timeout(300)  # half of it is on its way


def score(page: Page) -> None:
    """Waits for the end of the upload and scores what has arrived."""
    page.get_by_text("large.zip has arrived.").wait_for()
    page.get_by_role("button", name="Score", exact=True).click()
    page.locator(".first-actions").or_(page.get_by_role("link", name="Understand")).first.wait_for()


@pytest.mark.long
def test_an_upload_goes_on_after_the_network_was_away(
    page: Page,
    archive: Path,
    offsets: list[int],
    set_network: Callable[..., None],
    problems: list[str],
) -> None:
    begin(page, archive)
    second_part_begins(page)

    set_network(offline=True)
    page.get_by_text("large.zip: The service does not answer. Trying again.").wait_for()
    set_network(offline=False)
    score(page)

    assert offsets[:2] == [0, PART]
    assert len(offsets) > len(set(offsets)) >= 3
    assert problems
    assert [text for text in problems if "ERR_INTERNET_DISCONNECTED" not in text] == []
    problems.clear()


@pytest.mark.long
@pytest.mark.usefixtures("set_network")
def test_an_upload_goes_on_when_the_same_file_is_chosen_after_a_reload(
    page: Page, archive: Path, offsets: list[int]
) -> None:
    begin(page, archive)
    second_part_begins(page)

    page.reload()
    begin(page, archive)
    score(page)

    assert offsets[:2] == [0, PART]
    assert min(offsets[2:]) > PART
