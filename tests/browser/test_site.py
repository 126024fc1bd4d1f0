"""The site of the pages, built as `make docs` does and opened in Chromium as files."""

import io
import re
import warnings
from contextlib import redirect_stderr
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from difficulty_service.cli import create_app
from tests.browser.kinds import OpenPage
from tests.browser.reports import axe_findings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WIDE = ["index", "commands", "evidence", "method", "python", "score-file"]
"""Pages with everything that may be wider than a phone: pictures, tables, formulas, signatures."""


class Addresses(HTMLParser):
    """Where a page leads, what it loads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "a":
            self.links.append(values.get("href", ""))
        elif tag == "link":
            self.loaded.append(values.get("href", ""))
        else:
            self.loaded.append(values.get("src", ""))


def build(source: Path, out: Path, *options: str) -> tuple[int, str]:
    """Runs Sphinx with the settings of the site and warnings as errors; gives its exit and errors.

    It runs in this process, which has loaded torch.
    """
    main = pytest.importorskip("sphinx.cmd.build", reason="sphinx is not installed").main
    words = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", DOCS]
    words += [*options, "--doctree-dir", out / "doctrees", source, out]
    errors = io.StringIO()
    with redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its packages deprecate is not about the pages
        code = main([str(word) for word in words])
    return code, errors.getvalue()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    code, errors = build(DOCS, folder)
    assert code == 0, errors
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Addresses]:
    """Every page of the site, by its file."""
    pages = {}
    for file in site.glob("*.html"):
        pages[file] = Addresses()
        pages[file].feed(file.read_text())
    return pages


def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(pages: dict[Path, Addresses]) -> None:
    broken = []
    for file, page in pages.items():
        for link in page.links + page.loaded:
            address = urlsplit(link)
            if address.scheme:
                continue
            target = file.parent / unquote(address.path) if address.path else file
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(address.fragment) not in anchors | {""}:
                broken.append(f"{file.name}: {link}")

    assert len(pages) > 20
    assert broken == []


def test_no_page_loads_anything_from_another_host(pages: dict[Path, Addresses]) -> None:
    loaded = {
        address
        for page in pages.values()
        for address in page.loaded
        if urlsplit(address).netloc or urlsplit(address).scheme not in ("", "data")
    }

    assert loaded == set()


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# Page\n\n[a](gone.md) [b](index.md#gone) ![c](gone.png)\n")

    code, errors = build(source, tmp_path / "out", "--builder", "dummy")

    assert code != 0
    assert "cross-reference target not found: 'gone.md'" in errors
    assert "local id not found in doc 'index': 'gone'" in errors
    assert "image file not readable: gone.png" in errors


def test_every_command_has_a_section(site: Path) -> None:
    page = (site / "commands.html").read_text()

    commands = [name for name in create_app() if not name.startswith("-")]

    assert "score" in commands
    assert [name for name in commands if f'id="difficulty-{name}"' not in page] == []
    assert "--near-duplicates" in page


def test_every_function_named_for_the_python_api_is_described(
    site: Path, pages: dict[Path, Addresses]
) -> None:
    page = (DOCS / "python.md").read_text()
    blocks = re.findall(r"^```\{api\}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = [name for block in blocks for name in block.split()]

    described = pages[site / "python.html"].anchors

    assert "difficulty_service.interface.score.score" in names
    assert [
        name for name in names if name not in described and f"module-{name}" not in described
    ] == []
    assert "difficulty_service.interface.scores.Scores.hardest" in described


def test_formulas_are_mathml(site: Path) -> None:
    page = (site / "method.html").read_text()

    assert page.count("<math ") > 20
    assert "$" not in re.sub(r"<(code|pre|script).*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("page", "scheme", "device"),
    [
        ("index", "light", "desktop"),
        ("index", "dark", "desktop"),
        ("review", "dark", "phone"),
        ("method", "light", "desktop"),
    ],
)
def test_a_page_has_the_colours_of_the_system_and_no_serious_barrier(
    site: Path, open_page: OpenPage, page: str, scheme: str, device: str
) -> None:
    opened = open_page(site / f"{page}.html", device=device, color_scheme=scheme)

    background = opened.evaluate("getComputedStyle(document.body).backgroundColor")

    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness > 200) == (scheme == "light")
    # The theme names neither of its two sidebars.
    assert [each for each in axe_findings(opened) if each[0] != "landmark-unique"] == []


def test_every_page_fits_a_phone(site: Path, open_page: OpenPage) -> None:
    opened = open_page(site / "index.html", device="phone")

    too_wide = []
    for page in WIDE:
        opened.goto((site / f"{page}.html").as_uri())
        # Where a part that is too wide does not scroll by itself, the theme scrolls the content.
        content = opened.locator(".content")
        width, room = content.evaluate("each => [each.scrollWidth, each.clientWidth]")
        if not width <= room <= opened.evaluate("screen.width"):
            too_wide.append((page, width, room))

    assert too_wide == []


def test_the_start_page_leads_to_your_first_review_and_to_your_cleaned_dataset(
    site: Path, open_page: OpenPage
) -> None:
    page = open_page(site / "index.html")

    page.get_by_role("link", name="your first review").first.click()
    page.get_by_role("link", name="your cleaned dataset").first.click()

    assert page.url.endswith("/cleaning.html")


def test_a_search_finds_pages_in_files_without_a_network(site: Path, open_page: OpenPage) -> None:
    page = open_page(site / "index.html")

    page.get_by_placeholder("Search").fill("shrinkage")
    page.keyboard.press("Enter")
    page.get_by_text("matching the search query").wait_for()

    assert page.get_by_role("main").get_by_role("link", name="The method").count() == 1
