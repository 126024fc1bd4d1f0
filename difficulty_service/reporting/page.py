"""The report as HTML."""

from collections.abc import Mapping
from typing import Any

from difficulty_service.reporting.html_page import render_template

STYLES = ("base.css", "report.css", "review.css")
SCRIPTS = ("theme.js", "marks.js", "review.js", "dialog.js", "map.js")


def render_page(values: Mapping[str, Any]) -> str:
    """Fills the template of the report; every value is escaped.

    Args:
        values: Variables of the template.
    """
    return render_template("report.html.j2", values, styles=STYLES, scripts=SCRIPTS)
