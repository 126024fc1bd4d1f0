"""The commands of a page of docs/, for tests that run what the page says."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def commands_below(page: str, heading: str) -> list[str]:
    """The blocks of commands below a heading of a page, until the next one, in their order."""
    found = re.search(
        rf"^## {heading}\n(.*?)(?:^## |\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"{page} has no heading {heading!r}"
    return re.findall(r"^```\n(.*?)^```", found[1], re.MULTILINE | re.DOTALL)
