"""Pages beside the report: its styles, its switch of themes and its policy, another template."""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from difficulty_service.reporting.page import MINUS, NO_BREAK, POLICY

PACKAGE = "difficulty_service.reporting"
STYLES, SCRIPTS = ("base.css", "report.css", "comparison.css"), ("theme.js",)


def render_template(template: str, values: Mapping[str, Any]) -> str:
    """Fills a template of this package; every value is escaped.

    Args:
        template: File name of the template.
        values: Its variables besides `style`, `script` and `policy`.
    """
    style = "".join(_asset(name) for name in STYLES)
    script = f'"use strict";\n(() => {{\n{"".join(_asset(name) for name in SCRIPTS)}}})();\n'
    policy = POLICY.format(style=_hash(style), script=_hash(script))
    page = _environment().get_template(template)
    return page.render(style=style, script=script, policy=policy, **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "decimals": lambda number, places: f"{number:,.{places}f}".replace("-", MINUS),
        "whole_percent": lambda share: f"{100 * share:.0f}{NO_BREAK}%",
    }
    return environment


def _asset(name: str) -> str:
    return (files(PACKAGE) / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
