"""Writes the client's ScoreFilter and the conditions of docs/explorer.md from their table.

Run: python docs/conditions.py
"""

from pathlib import Path

from fastapi.openapi.utils import get_openapi

from api.routes import results
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("explorer.md")
MODULE = Path(__file__).parents[1] / "difficulty_service" / "client" / "score_filter.py"
BESIDE = {"sort", "limit", "after"}  # which are no conditions


def sentences() -> dict[str, str]:
    """What the conditions of a list of scores are, by their names."""
    paths = get_openapi(title="", version="", routes=results.router.routes)["paths"]
    parameters = paths["/v1/jobs/{job_id}/scores"]["get"]["parameters"]
    return {
        each["name"]: each["description"]
        for each in parameters
        if each["in"] == "query" and each["name"] not in BESIDE
    }


def page() -> str:
    """The page with the table of conditions."""
    rows = "".join(f"| `{name}` | {sentence} |\n" for name, sentence in sentences().items())
    table = f"| condition | value |\n| --- | --- |\n{rows}"
    return with_parts(PAGE, "conditions.py", {"conditions": table})


def module() -> str:
    """The module of the client, which a type checker reads."""
    described = "".join(f"        {name}: {text}.\n" for name, text in sentences().items())
    declared = "".join(f"    {name}: str\n" for name in sentences())
    return f'''"""Conditions of a list of samples; written by `python docs/conditions.py`."""

from typing import TypedDict


class ScoreFilter(TypedDict, total=False):
    """Which samples are listed.

    Attributes:
{described}    """

{declared}'''


if __name__ == "__main__":
    PAGE.write_text(page())
    MODULE.write_text(module())
