"""Takes the pictures of the report that the pages show.

    python docs/images/screenshots.py [FOLDER]

Scores the bundled digits, opens their report in Chromium without network, and writes WebP files to
FOLDER, or beside this file. Fonts and scores differ a little between machines, so no test compares
the pictures.
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).resolve().parent
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
QUALITY = 80

DESKTOP: dict[str, Any] = {"viewport": {"width": 1200, "height": 800}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 800},
    "device_scale_factor": 2,
    "is_mobile": True,
}


def main(folder: Path) -> None:
    """Writes every picture."""
    program = next(filter(None, map(shutil.which, PROGRAMS)))
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        demo = [sys.executable, "-m", "difficulty_service", "demo", "--out", place, "--no-open"]
        subprocess.run(demo, check=True)  # noqa: S603 - our own command
        report = Path(place, "report.html")
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        save(folder / "report.webp", opened(browser, report, DESKTOP))
        page = opened(browser, report, DESKTOP)
        page.locator(".look").first.focus()
        for key in ("r", "k", "r", "r", "k", "d", "Enter"):
            page.keyboard.press(key)
        save(folder / "report-review.webp", page)
        page = opened(browser, report, DESKTOP | {"color_scheme": "dark"})
        page.evaluate("document.getElementById('pairs').scrollIntoView()")
        save(folder / "report-dark.webp", page)
        page = opened(browser, report, PHONE)
        page.evaluate("document.getElementById('labels').scrollIntoView()")
        save(folder / "report-phone.webp", page)
        browser.close()


def opened(browser: Browser, report: Path, device: dict[str, Any]) -> Page:
    """The report in a new profile."""
    page = browser.new_context(offline=True, **device).new_page()
    page.goto(report.as_uri())
    return page


def save(path: Path, page: Page) -> None:
    """Writes what is in view."""
    page.wait_for_timeout(300)  # pictures are decoded after they come into view
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").save(path, "WEBP", quality=QUALITY, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
