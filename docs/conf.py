"""Settings of the site that `make docs` builds: its pages, its look, and what is made of code.

The pages are plain Markdown that a code host shows, too. What such a host cannot show is added
here: the navigation, the help of every command, the Python API and formulas as MathML.
"""

import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from difficulty_service.cli import create_app

project = "difficulty"
html_title = "difficulty"
language = "en"
smartquotes = False  # would make dashes of the hyphens before an option

NAVIGATION = {
    "Start": {
        "self": "What it is",
        "install": "Installation",
        "review": "Your first review",
        "cleaning": "Your cleaned dataset",
    },
    "How-to": {
        "datasets": "Datasets",
        "images": "Images",
        "objects": "Boxes of objects",
        "fields": "Other fields",
        "texts": "Texts",
        "report": "The report",
        "explorer": "Exploring in the browser",
        "annotators": "Several labels per image",
        "tags": "Several tags per image",
        "leaks": "Copies across splits",
        "diff": "Versions of a dataset",
        "selecting": "What to label or keep",
        "growing": "A dataset that grows",
        "comparing": "Comparing and combining backbones",
        "explaining": "What hard images share",
        "training": "Training with scores",
        "imagenet": "ImageNet from nothing",
        "own-loop": "In your own training loop",
        "loop-contract": "What a training loop owes",
        "uncertainty": "Uncertainty without labels",
        "scaling": "Scaling",
        "api": "Running and calling the service",
        "client": "The service from Python",
        "operating": "Backup, restore and upgrade",
        "threat-model": "Threat model",
        "security": "Security",
        "plugins": "Plug-ins",
    },
    "Reference": {
        "commands": "Commands",
        "options": "Options of scoring",
        "score-file": "The score file",
        "recipes": "Keys of a recipe",
        "python": "Python",
        "method": "The method",
        "suspicion": "Suspicion of labels",
        "contributing": "Contributing",
    },
    "Evidence": {
        "findings": "Findings",
        "evidence": "Beside other packages",
        "benchmarks": "Benchmarks",
        "formats": "Formats as other tools write them",
        "papers": "Tables and figures of the papers",
        "paper-figures": "Figures of the papers",
    },
}
"""Pages of each kind, in the order of the sidebar, with their names there."""

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["figures", "images"]  # what pages show of them is copied nevertheless

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

highlight_language = "none"  # of blocks that name no language

default_role = "literal"  # docstrings write `names` as Markdown does
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # would read the pages over HTTP; they may be opened as files
html_math_renderer = "mathml"

DIRECTIVES = {"module": "automodule", "class": "autoclass", "function": "autofunction"}


class Api(SphinxDirective):
    """Documents what each line names: a function, a class or the members of a module."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The signatures and docstrings."""
        described = "\n".join(_described(name) for name in self.content if name)
        return self.parse_text_to_nodes(f"```{{eval-rst}}\n{described}\n```")


def _described(name: str) -> str:
    directive = DIRECTIVES[_kind(name)]
    members = "" if directive == "autofunction" else "\n   :members:"
    return f".. {directive}:: {name}{members}\n"


def _kind(name: str) -> str:
    parent, _, last = name.rpartition(".")
    found = getattr(importlib.import_module(parent), last, None)
    if inspect.isclass(found):
        return "class"
    return "function" if callable(found) else "module"


def add_generated(app: Sphinx, page: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx calls it so
    """Adds the navigation to the start page, and every command to the page of commands."""
    if page == "index":
        source[0] += "".join(_toctree(kind, pages) for kind, pages in NAVIGATION.items())
    if page == "commands":
        source[0] += _commands()


def _toctree(kind: str, pages: dict[str, str]) -> str:
    entries = "\n".join(f"{title} <{page}>" for page, title in pages.items())
    return f"\n```{{toctree}}\n:hidden:\n:caption: {kind}\n\n{entries}\n```\n"


def _commands() -> str:
    text = create_app().generate_docs("markdown")
    sections = re.split(r"^(?=## difficulty [a-z])", text, flags=re.MULTILINE)[1:]
    return "\n" + "".join(sections).replace("$", r"\$")


def show_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Writes a formula of a sentence."""
    self.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def show_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Writes a formula of its own."""
    self.body.append(f'<div class="math">{_mathml(node, "block")}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, display: str) -> str:
    # The converter takes the underscore of `\texttt{md\_agnostic}` without its backslash.
    return convert(node.astext().replace(r"\_", "_"), display=display)


ACCESSIBLE = {
    '<p class="caption" role="heading"': '<p class="caption" role="heading" aria-level="2"',
    "<pre>": '<pre tabindex="0">',
    '<div class="math-wrapper': '<div tabindex="0" class="math-wrapper',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}
"""What the theme leaves out: the level of headings, and the keyboard where something scrolls."""


def make_accessible(
    app: Sphinx,  # noqa: ARG001 - Sphinx calls it so
    page: str,  # noqa: ARG001
    template: str,  # noqa: ARG001
    context: dict[str, Any],
    doctree: nodes.document | None,  # noqa: ARG001
) -> None:
    """Completes the parts of a page."""
    for part in {"body", "furo_navigation_tree"} & context.keys():
        for old, new in ACCESSIBLE.items():
            context[part] = context[part].replace(old, new)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers what is made here."""
    app.add_directive("api", Api)
    app.add_html_math_renderer("mathml", (show_inline, None), (show_block, None))
    app.connect("source-read", add_generated)
    app.connect("html-page-context", make_accessible, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
