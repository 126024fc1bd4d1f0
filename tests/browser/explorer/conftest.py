"""A running service with a worker and a finished job, and a signed-in browser."""

import json
import os
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from api.settings import Settings
from api.storage.database import open_database
from api.storage.keys import create_key
from tests.browser.explorer.service import TIMEOUT, Explorer, scored
from tests.browser.kinds import BrowserContext, Page
from tests.factories import unpack_map
from tests.service import listening_url

CLASSES = ("bird", "<b>cat<", "dog")
EACH = 40
HOSTILE = "=1+1<img src=x onerror=alert(1)>.png"


@pytest.fixture(scope="session")
def explorer(
    fork_command: Callable[..., ForkServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("explorer")
    write_images(folder / "photos" / "train")
    variables = {
        "roots": json.dumps({"photos": str(folder / "photos")}),
        "data_dir": folder / "data",
        "default_backbone": "builtin",
        "device": "cpu",
        "poll": 0.2,  # not more often, since it is idle for most of the run
        "heartbeat": 0.5,
        "rate_limit": "100000/minute",
    }
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        **{f"DIFFICULTY_{name.upper()}": str(value) for name, value in variables.items()},
    }
    with open_database(Settings(data_dir=folder / "data")) as engine:
        _, secret = create_key(engine, "browser", ["write"])
        _, read_only = create_key(engine, "visitor", ["read-all"])
    log = folder / "log"
    process = fork_command(
        "serve", "--port", 0, "--with-worker", environment=environment, errors=log
    )
    try:
        url = listening_url(process, log)
        with httpx2.Client(
            base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=TIMEOUT
        ) as client:
            job = scored(client, "train")
            content = client.get(f"/v1/jobs/{job}/scores.parquet").raise_for_status().content
        rows = pq.read_table(pa.BufferReader(content)).to_pylist()
        yield Explorer(url, secret, read_only, job, rows, folder / "photos")
    finally:
        process.terminate()
        process.join(60)
    assert process.exitcode == 0, log.read_text()


def write_images(folder: Path) -> None:
    """Noise of a colour per class; every eighth image has the colour of another class."""
    generator = np.random.default_rng(3)
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(EACH):
            colour = (label + (number % 8 == 0)) % 3
            pixels = generator.integers(0, 90, (32, 32, 3))
            pixels[:, :, colour] += 140
            file = HOSTILE if (label, number) == (0, 0) else f"{name[0]}{number:02}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / file)
    (folder / CLASSES[0] / "damaged.png").write_bytes(b"no image")


@pytest.fixture
def no_marks(explorer: Explorer) -> None:
    """Removes the marks that other tests have left."""
    with explorer.client() as client:
        marks = client.get(f"/v1/jobs/{explorer.job}/marks?limit=1000").json()["marks"]
        if marks:
            body = {"marks": [{"row": mark["row"], "decision": None} for mark in marks]}
            client.post(f"/v1/jobs/{explorer.job}/marks", json=body).raise_for_status()


@pytest.fixture
def new_context(
    make_context: Callable[..., BrowserContext], explorer: Explorer
) -> Callable[..., BrowserContext]:
    """Makes a profile of the browser that may only ask the service."""
    return lambda **options: make_context((explorer.url,), base_url=explorer.url, **options)


@pytest.fixture
def context(new_context: Callable[..., BrowserContext], explorer: Explorer) -> BrowserContext:
    """A signed-in profile."""
    return signed_in(new_context(), explorer.secret)


def signed_in(context: BrowserContext, secret: str) -> BrowserContext:
    answer = context.request.post("/sign-in", form={"key": secret, "next": "/"}, max_redirects=0)
    assert answer.status == 303
    return context


@pytest.fixture
def signed_in_page(
    new_context: Callable[..., BrowserContext], explorer: Explorer
) -> Callable[..., Page]:
    """Opens a page of a new profile, signed in with the key that may write or with another."""

    def open_page(secret: str = explorer.secret, **options: Any) -> Page:  # noqa: ANN401
        return signed_in(new_context(**options), secret).new_page()

    return open_page


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A page of the signed-in profile."""
    return context.new_page()


@pytest.fixture
def open_map(explorer: Explorer) -> Callable[[Page], Page]:
    """Opens the map of two directions, with its points, in a page; the t-SNE is never ready."""

    def open_plane(page: Page) -> Page:
        waiting = {"share": 0.4, "failure": None}
        page.route("**/map/tsne", lambda route: route.fulfill(status=202, json=waiting))
        page.goto(f"/jobs/{explorer.job}/map")
        page.locator("#map-box").wait_for()
        return page

    return open_plane


@pytest.fixture
def map_page(page: Page, open_map: Callable[[Page], Page]) -> Page:
    """A page with the map of two directions."""
    return open_map(page)


@pytest.fixture
def points(explorer: Explorer) -> dict[str, Any]:
    """Facts and columns of the points on that map, as the page reads them."""
    with explorer.client() as client:
        answer = client.get(f"/jobs/{explorer.job}/map/points").raise_for_status().content
    return unpack_map(answer)


MARGIN = 12


@pytest.fixture
def places(points: dict[str, Any]) -> Callable[[Page], np.ndarray]:
    """Where the points of the whole map are in the window. Shape (points, 2)."""

    def find(page: Page) -> np.ndarray:
        page.locator("#map-canvas").scroll_into_view_if_needed()
        box = page.locator("#map-canvas").bounding_box()
        x, y = points["positions"].reshape(-1, 2).T / 65535
        width, height = box["width"] - 2, box["height"] - 2
        left = box["x"] + 1 + MARGIN + x * (width - 2 * MARGIN)
        return np.stack([left, box["y"] + 1 + height - MARGIN - y * (height - 2 * MARGIN)], axis=1)

    return find


@pytest.fixture
def draw_around(
    points: dict[str, Any], places: Callable[[Page], np.ndarray]
) -> Callable[..., list[int]]:
    """Drags the mouse around some points with a key; gives the rows of all points inside."""

    def draw(page: Page, chosen: list[int], key: str | None = "Shift") -> list[int]:
        all_places = places(page)
        low, high = all_places[chosen].min(0) - 3, all_places[chosen].max(0) + 3
        (left, top), (right, bottom) = low, high
        page.mouse.move(left, top)
        if key:
            page.keyboard.down(key)
        page.mouse.down()
        for x, y in ((right, top), (right, bottom), (left, bottom), (left, top + 1)):
            page.mouse.move(x, y, steps=4)
        page.mouse.up()
        if key:
            page.keyboard.up(key)
        inside = ((all_places > low) & (all_places < high)).all(axis=1)
        return [int(points["rows"][index]) for index in np.flatnonzero(inside)]

    return draw
