"""Turns what a code host shows by itself into pages of the site: the README and formulas."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT_PAGES = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
FORMULA = re.compile(
    r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that lie in the root of the repository, with links as seen from docs/."""
    root = Path(config.config_file_path).parent
    for name, source in ROOT_PAGES.items():
        text = (root / source).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes all by name
    """Replaces every formula by MathML, which browsers show without a script."""
    return FORMULA.sub(_to_mathml, content)


def _to_mathml(formula: re.Match[str]) -> str:
    display = "block" if formula[1] == "[" else "inline"
    # The converter takes the underscore of `\texttt{md\_agnostic}` without its backslash.
    return convert(html.unescape(formula[2]).replace(r"\_", "_"), display=display)
