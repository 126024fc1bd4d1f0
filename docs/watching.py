"""Writes the metrics of `difficulty watch` in docs/watching.md.

Run: python docs/watching.py
"""

from pathlib import Path

from difficulty_service.watching import GAUGES
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_suffix(".md")


def page() -> str:
    """The page with the present metrics."""
    rows = "".join(f"| `difficulty_watch_{name}` | {text} |\n" for name, text in GAUGES.items())
    table = f"| metric | what it is |\n| --- | --- |\n{rows}"
    return with_parts(PAGE, "watching.py", {"gauges": table})


if __name__ == "__main__":
    PAGE.write_text(page())
