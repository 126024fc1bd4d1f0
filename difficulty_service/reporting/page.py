"""The report as HTML: templates, styles, scripts and a policy that lets nothing else run."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

STYLES = ("base.css", "report.css", "review.css")
SCRIPTS = ("theme.js", "marks.js", "review.js", "dialog.js", "map.js")

POLICY = (
    "default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; "
    "base-uri 'none'; form-action 'none'"
)
"""Content security policy: no request leaves the page, and nothing runs but its own script."""

MINUS, NO_BREAK = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"


def render_page(values: Mapping[str, Any]) -> str:
    """Fills the template of the report; every value is escaped.

    Args:
        values: Variables of the template.
    """
    style = "".join(_asset(name) for name in STYLES)
    script = f'"use strict";\n(() => {{\n{"".join(_asset(name) for name in SCRIPTS)}}})();\n'
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            style=style,
            script=script,
            policy=POLICY.format(style=_hash(style), script=_hash(script)),
            **values,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("difficulty_service.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "decimal": decimal,
        "percent": lambda share: f"{100 * share:.1f}{NO_BREAK}%",
        "whole_percent": lambda share: f"{100 * share:.0f}{NO_BREAK}%",
        "script_json": script_json,
    }
    return environment


def decimal(number: float) -> str:
    """A number with one decimal and a true minus sign; a dash where there is none."""
    if math.isnan(number):
        return "\N{EN DASH}"
    text = f"{number:,.1f}"
    return text.replace("-", MINUS) if text.strip("-0.") else "0.0"


def script_json(value: object) -> str:
    """JSON in which no text can end the element that holds it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return (files("difficulty_service.reporting") / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
