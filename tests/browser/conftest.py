"""A real Chromium, and reports of real pictures that are opened in it as files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from benchmarks.machine import BROWSERS, browser_program
from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.scores.file import SCHEMA, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.browser.kinds import Browser, BrowserContext, Locator, MakeContext, OpenPage, Page
from tests.browser.reports import write_report
from tests.factories import store_of

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    # Even a request by mistake finds no host outside this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
DEVICES = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "is_mobile": True,
        "has_touch": True,
    },
}

CLASSES = ("bird", "cat", "dog")
HOSTILE_CLASSES = ("<b>bird</b>", '=cat,"1"\n\'', "dog\u202egod")
SAMPLES = 90


def is_dark(item: pytest.Function) -> bool:
    """Whether a test looks at dark colours."""
    return hasattr(item, "callspec") and "dark" in item.callspec.params.values()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all tests of this folder as slow: what they begin with takes seconds.

    Those in dark colours are long: they do again what others do in light ones.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
            if isinstance(item, pytest.Function) and is_dark(item):
                item.add_marker(pytest.mark.long)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without network and sandbox, for every test of this folder."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = browser_program()
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    click = sync_api.Locator.click

    def click_and_look(locator: Locator, **options: Any) -> None:  # noqa: ANN401 - of click
        """Clicks as a person does, who uses the next page once it is there."""
        click(locator, **options)
        locator.page.wait_for_load_state()

    with sync_api.sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_api.Locator, "click", click_and_look)
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def problems() -> list[str]:
    """What a browser complained about; a test that expects something removes it."""
    return []


@pytest.fixture
def make_context(browser: Browser, problems: list[str]) -> Iterator[MakeContext]:
    """Makes a profile of the browser that may only ask for addresses with some beginnings.

    At the end, nothing may have been asked for elsewhere, written to the console or shown in a
    dialog of the browser.
    """
    contexts = []

    def make(allowed: tuple[str, ...], **options: object) -> BrowserContext:
        def watch(page: Page) -> None:
            page.on(
                "console",
                lambda message: problems.append(
                    f"{message.type}: {message.text} at {message.location['url']}"
                ),
            )
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
            page.on(
                "request",
                lambda request: (
                    None if request.url.startswith(allowed) else problems.append(request.url)
                ),
            )

        context = browser.new_context(**options)
        context.set_default_timeout(180_000)  # a job on a busy machine
        context.on("page", watch)
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def open_page(make_context: MakeContext) -> OpenPage:
    """Opens a file offline in a profile of its own."""

    def open_file(path: Path, device: str = "desktop", **options: object) -> Page:
        context = make_context(
            ("file:", "data:", "blob:"), offline=True, **DEVICES[device], **options
        )
        page = context.new_page()
        page.goto(path.as_uri())
        return page

    return open_file


@pytest.fixture(scope="session")
def make_scored(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes coloured pictures of three classes in a table, and their scores; gives the scores."""

    def make(
        classes: tuple[str, ...] = CLASSES, ids: Callable[[int], str] = "{}.png".format
    ) -> Path:
        folder = tmp_path_factory.mktemp("browser")
        generator = np.random.default_rng(5)
        labels = np.arange(SAMPLES) % 3
        encoded = []
        for row, label in enumerate(labels.tolist()):
            pixels = np.full((32, 32, 3), 60, np.uint8)
            pixels[:, :, label] = 120 + row
            path = folder / "picture.png"
            Image.fromarray(pixels).save(path)
            encoded.append(path.read_bytes())
        names = [classes[label] for label in labels]
        sample_ids = [ids(row) for row in range(SAMPLES)]
        images = pa.table({"key": sample_ids, "image": encoded, "label": names})
        pq.write_table(images, folder / "images.parquet")
        margins = np.where(np.arange(SAMPLES) % 2, -1, 1) * generator.gamma(2, 5, SAMPLES)
        nearest = np.where(margins > 0, (labels + 1) % 3, labels)
        columns = {
            "sample_id": sample_ids,
            "label": labels,
            "label_name": names,
            "rmd": generator.normal(0, 3, SAMPLES),
            "md_agnostic": generator.gamma(50, 2, SAMPLES),
            "nearest_label": nearest,
            "nearest_label_name": [classes[label] for label in nearest],
            "label_margin": margins,
            "percentile": np.linspace(0, 1, SAMPLES),
            "near_duplicate_of": [
                sample_ids[0] if row in (7, 8) else None for row in range(SAMPLES)
            ],
        }
        table = pa.table(columns).cast(pa.schema([_plain(SCHEMA.field(name)) for name in columns]))
        provenance = {
            "class_names": list(classes),
            "dataset": str(folder / "images.parquet"),
            "dataset_options": {"id_column": "key"},
            "near_duplicates": 0.97,
            "fingerprint": folder.name,
        }
        write_scores(folder / "scores.parquet", table, Provenance.of(provenance))
        return folder / "scores.parquet"

    return make


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string()) if pa.types.is_dictionary(field.type) else field


@pytest.fixture(scope="session")
def scored(make_scored: Callable[..., Path]) -> Path:
    """A score file of ninety pictures."""
    return make_scored()


@pytest.fixture(scope="session")
def report(scored: Path) -> Path:
    """Its report."""
    return write_report(scored)


@pytest.fixture(scope="session")
def report_with_map(scored: Path) -> Path:
    """The same report with a map of features that separate the classes."""
    ids = read_scores(scored).table["sample_id"].to_pylist()
    labels = torch.arange(SAMPLES) % 3
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(SAMPLES, 6, generator=generator) + 6 * F.one_hot(labels, 6)
    store = store_of(scored.with_suffix(".features"), features, labels, ids, class_names=CLASSES)
    path = scored.with_name("map.html")
    make_report(read_reported(scored), path, ReportOptions(features=store.folder))
    return path


@pytest.fixture(scope="session")
def hostile(make_scored: Callable[..., Path]) -> Path:
    """A score file whose ids and classes would break a careless page or spreadsheet."""
    script = "</script><script>alert(1)</script>"
    beginnings = (script, "-x", "'=x", 'a,b\n"c"', "\t=1+1", "\u202ex")  # even ones are doubtful
    return make_scored(HOSTILE_CLASSES, lambda row: f"{beginnings[row % 6]}{row}")
