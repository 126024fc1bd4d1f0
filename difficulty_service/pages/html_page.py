"""Self-contained pages: templates, styles, scripts and a policy that lets nothing else run."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from difficulty_service.base.errors import ReportError
from difficulty_service.base.files import replacing, require_output_file
from difficulty_service.base.wording import UNUSUAL, one_of
from difficulty_service.marks.mark_kinds import script_data
from difficulty_service.pages.scripts import classic_script
from difficulty_service.scores import tiers

PACKAGE = "difficulty_service.pages"

POLICY = (
    "default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; "
    "base-uri 'none'; form-action 'none'"
)
"""Content security policy: no request leaves the page, and nothing runs but its own script."""

MINUS, NO_BREAK = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"


SURE = 0.001
"""Probability below which, or above one minus which, it is only said that it is."""

LARGEST_ODDS = 50.0  # logarithm, which is far beyond SURE


def require_page_file(path: Path) -> None:
    """Raises ReportError where a page cannot be written to a path."""
    require_output_file(path, (".html", ".htm"), ReportError)


def render_template(
    template: str,
    values: Mapping[str, Any],
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    package: str = PACKAGE,
) -> str:
    """Fills a template; every value is escaped.

    Scripts bring along what they import. What a package lacks in its folders `templates` and
    `static` is taken from this one.
    """
    style = "".join(_asset(package, name) for name in styles)
    script = classic_script(scripts, lambda name: _asset(package, name))
    policy = POLICY.format(style=_hash(style), script=_hash(script))
    page = environment_of(package).get_template(template)
    return page.render(style=style, script=script, policy=policy, **values)


def write_page(
    path: Path, template: str, values: Mapping[str, Any], *, styles: Sequence[str], package: str
) -> None:
    """Writes a page that has no script but that of the theme; it appears whole or not at all."""
    page = render_template(template, values, styles=styles, scripts=("theme.js",), package=package)
    with replacing(path) as temporary:
        temporary.write_text(page, "utf-8", errors="replace")


@cache
def environment_of(package: str) -> Environment:
    """The environment of the templates of a package, with the filters that all pages share."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, PACKAGE))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "decimals": decimals,
        "chance": chance,
        "rank": rank,
        "percent": lambda share: f"{100 * share:.1f}{NO_BREAK}%",
        "whole_percent": lambda share: f"{100 * share:.0f}{NO_BREAK}%",
        "script_json": _script_json,
    }
    environment.filters["script_data"] = script_data
    environment.filters["one_of"] = one_of
    environment.globals["unusual_ones"] = UNUSUAL
    environment.globals["tiers"] = tiers
    return environment


def decimals(number: float, places: int = 1) -> str:
    """A number with some decimals and a true minus sign; a dash where there is none."""
    if math.isnan(number):
        return "\N{EN DASH}"
    text = f"{number:,.{places}f}"
    return text.replace("-", MINUS) if text.strip("-0.") else text.removeprefix("-")


def chance(log_odds: float) -> str:
    """The probability of log-odds in percent, never all or nothing; a dash where there is none."""
    if math.isnan(log_odds):
        return "\N{EN DASH}"
    share = 1 / (1 + math.exp(-max(-LARGEST_ODDS, min(LARGEST_ODDS, log_odds))))
    if share < SURE:
        return f"< {100 * SURE:.1f}{NO_BREAK}%"
    if share > 1 - SURE:
        return f"> {100 * (1 - SURE):.1f}{NO_BREAK}%"
    return f"{100 * share:.1f}{NO_BREAK}%"


def rank(percentile: float, noun: str) -> str:
    """How hard a sample is beside all others; empty where it has no score."""
    if math.isnan(percentile):
        return ""
    if percentile == 1:
        return f"the hardest of all {noun}s"
    # Rounded down, so that no other sample is harder than all of them.
    return f"harder than {math.floor(1000 * percentile) / 10:.1f}{NO_BREAK}% of all"


@cache
def report_colours() -> Mapping[str, str]:
    """The colours of the light theme by their names, such as `hard`, as `base.css` states them."""
    light = _asset(PACKAGE, "base.css").partition("}")[0]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3}(?:[0-9a-f]{3})?);", light))


def _script_json(value: object) -> str:
    """JSON in which no text can end the element that holds it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(package: str, name: str) -> str:
    own = files(package) / "static" / name
    return (own if own.is_file() else files(PACKAGE) / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
