"""Takes the pictures of the pages that the documentation shows.

    python -m docs.images.screenshots [FOLDER]

Scores the bundled digits, opens what the commands write and serve in Chromium, and writes WebP
files to FOLDER, or beside this file. Fonts and scores differ a little between machines, so no test
compares the pictures.
"""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.machine import BROWSERS, browser_program

HERE = Path(__file__).resolve().parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
QUALITY = 80
PORT = 8731
TRAINING_DIGITS = 1200
COPIED_DIGITS, RELABELLED = 15, (3, 8)

DESKTOP: dict[str, Any] = {"viewport": {"width": 1200, "height": 800}}
DARK = DESKTOP | {"color_scheme": "dark"}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 800},
    "device_scale_factor": 2,
    "is_mobile": True,
}
PICTURES_LOADED = """() => [...document.images].every((each) => {
    const box = each.getBoundingClientRect();
    const isInView = box.width && box.bottom > 0 && box.top < window.innerHeight;
    return !isInView || (each.complete && each.naturalWidth);
})"""


def main(folder: Path) -> None:
    """Writes every picture."""
    program = browser_program()
    if program is None:
        sys.exit(f"error: none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        place = Path(name)
        difficulty(place, "demo", "--out", ".", "--no-open")
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        take_report(browser, place, folder)
        take_explorer(browser, place, folder)
        take_jobs(browser, place, folder)
        take_comparisons(browser, place, folder)
        take_leaks(browser, place, folder)
        browser.close()


def take_report(browser: Browser, place: Path, folder: Path) -> None:
    """The report: its first screen, a review, the dark colours and a phone."""
    report = (place / "report.html").as_uri()
    save(folder / "report.webp", opened(browser, report, DESKTOP))
    page = opened(browser, report, DESKTOP)
    page.locator(".look").first.focus()
    press(page, "r", "k", "r", "r", "k", "d", "Enter")
    save(folder / "report-review.webp", page)
    page = opened(browser, report, DARK)
    page.evaluate("document.getElementById('pairs').scrollIntoView()")
    save(folder / "report-dark.webp", page)
    page = opened(browser, report, PHONE)
    page.evaluate("document.getElementById('labels').scrollIntoView()")
    save(folder / "report-phone.webp", page)


def take_explorer(browser: Browser, place: Path, folder: Path) -> None:
    """The explorer: marked images, one image in the dark colours, and a phone."""
    with running(place, "explore", "scores.parquet", "--no-browser") as process:
        job = next(iter(process.stdout or ())).split()[1]  # Open ADDRESS in a browser
        page = opened(browser, f"{job}/images", DESKTOP)
        press(page, "ArrowRight", "r", "k", "r", "r", "k", "d")
        page.locator("#tray-text", has_text="6 checked").wait_for()
        save(folder / "explorer.webp", page)
        page = opened(browser, f"{job}/images", DARK)
        page.locator(".look").nth(2).click()
        page.locator(".one-image").wait_for()
        save(folder / "explorer-image-dark.webp", page)
        page = opened(browser, f"{job}/images", PHONE)
        save(folder / "explorer-phone.webp", page)


def take_jobs(browser: Browser, place: Path, folder: Path) -> None:
    """The jobs of a service, and the form for a new one."""
    digits = Path(str(files("difficulty_service.demo")))
    settings = {
        "DIFFICULTY_ROOTS": f'{{"digits": "{digits}"}}',
        "DIFFICULTY_DATA_DIR": str(place / "service"),
        "DIFFICULTY_DEFAULT_BACKBONE": "builtin",
    }
    with running(place, "serve", "--port", str(PORT), "--with-worker", settings=settings):
        page = browser.new_context(**DESKTOP).new_page()
        for attempt in range(60):
            try:
                page.goto(f"http://127.0.0.1:{PORT}/")
                break
            except Exception:  # noqa: BLE001 - of Playwright, until the service listens
                page.wait_for_timeout(1000 if attempt else 3000)
        for _ in range(2):
            page.get_by_label("Folder or file below it").fill("digits.parquet")
            page.get_by_role("button", name="Score", exact=True).click()
            page.locator(".first-actions").wait_for(timeout=120_000)
            page.get_by_role("link", name="Jobs", exact=True).click()
        save(folder / "explorer-jobs.webp", page)


def take_comparisons(browser: Browser, place: Path, folder: Path) -> None:
    """The page of two score files, and that of two training runs."""
    digits = pq.read_table(Path(str(files("difficulty_service.demo"))) / "digits.parquet")
    pq.write_table(digits.slice(0, TRAINING_DIGITS), place / "train.parquet")
    pq.write_table(digits.slice(TRAINING_DIGITS), place / "test.parquet")
    options = ("--backbone", "builtin", "--id-column", "id")
    score = ("score", "train.parquet", *options)
    difficulty(place, *score, "--out", "once.parquet")
    difficulty(place, *score, "--out", "augmented.parquet", "--augment-runs", "5")
    difficulty(place, "compare-scores", "once.parquet", "augmented.parquet", "--out", "scores.html")
    page = opened(browser, (place / "scores.html").as_uri(), DESKTOP)
    save(folder / "comparison.webp", page)

    difficulty(place, "extract", "test.parquet", *options, "--out", "test.features")
    data = ("--set", "data.train=once.features", "--set", "data.test=test.features")
    seeds = ("--set", "training.seeds=[0,1,2]")  # enough for intervals
    for loss in ("cross_entropy", "label_smoothing"):
        named = ("--set", f"name={loss}", "--set", f"loss.name={loss}", "--out", f"runs/{loss}")
        difficulty(place, "train", "probe_quick", *data, *seeds, *named)
    runs = ("runs/cross_entropy", "runs/label_smoothing")
    difficulty(place, "compare", *runs, "--out", "training.md")
    page = opened(browser, (place / "training.html").as_uri(), DESKTOP)
    save(folder / "training-comparison.webp", page)


def take_leaks(browser: Browser, place: Path, folder: Path) -> None:
    """The page of a test set with copies of training images, of which some have another label."""
    digits = pq.read_table(Path(str(files("difficulty_service.demo"))) / "digits.parquet")
    pq.write_table(digits.slice(0, TRAINING_DIGITS), place / "train.parquet")
    copies = digits.slice(0, COPIED_DIGITS).to_pylist()
    rows = [
        row | {"id": f"copy-{number}", "label": 9 if number in RELABELLED else row["label"]}
        for number, row in enumerate(copies)
    ]
    copied = pa.Table.from_pylist(rows, digits.schema)
    pq.write_table(
        pa.concat_tables([digits.slice(TRAINING_DIGITS), copied]), place / "test.parquet"
    )
    for name in ("train", "test"):
        options = ("--backbone", "builtin", "--id-column", "id", "--out", f"{name}.features")
        difficulty(place, "extract", f"{name}.parquet", *options)
    words = ("train.features", "test.features", "--near-duplicates", "0.98")
    difficulty(place, "leaks", *words, "--report", "leaks.html")
    save(folder / "leaks.webp", opened(browser, (place / "leaks.html").as_uri(), DESKTOP))


def difficulty(place: Path, *words: str) -> None:
    """Runs a command in a folder."""
    subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "difficulty_service", *words], cwd=place, check=True
    )


@contextmanager
def running(
    place: Path, *words: str, settings: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Runs a command that serves pages, until the end of the block."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "difficulty_service", *words],
        cwd=place,
        env=os.environ | (settings or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def opened(browser: Browser, address: str, device: dict[str, Any]) -> Page:
    """A page in a new profile."""
    page = browser.new_context(offline=address.startswith("file:"), **device).new_page()
    page.goto(address)
    return page


def press(page: Page, *keys: str) -> None:
    """Presses keys one after the other."""
    for key in keys:
        page.keyboard.press(key)


def save(path: Path, page: Page) -> None:
    """Writes what is in view, once its pictures are there."""
    page.wait_for_function(PICTURES_LOADED)
    page.wait_for_timeout(300)  # they are decoded after they have loaded
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").save(path, "WEBP", quality=QUALITY, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
