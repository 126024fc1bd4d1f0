"""Prints how many words each page has without the parts that are made from code, and their sum.

Run: python docs/words.py
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PART = re.compile(r"^<!-- ([\w-]+): written by .*?^<!-- end of \1 -->$", re.MULTILINE | re.DOTALL)
API = re.compile(r"^```\{api\}\n.*?^```$", re.MULTILINE | re.DOTALL)
"""Names whose docstrings take the place of this block."""

WHOLE = re.compile(r"^<!-- Written by ", re.MULTILINE)
"""The comment of a page that is made from code as a whole."""


def words(text: str) -> int:
    """The words of a page, as `wc -w` counts them, without what is made from code."""
    return 0 if WHOLE.search(text) else len(API.sub("", PART.sub("", text)).split())


def words_by_page() -> dict[str, int]:
    """The words of every page, by its name."""
    return {page.name: words(page.read_text()) for page in sorted(FOLDER.glob("*.md"))}


if __name__ == "__main__":
    counts = words_by_page()
    lines = [*counts.items(), ("all pages", sum(counts.values()))]
    sys.stdout.writelines(f"{count:6,} {name}\n" for name, count in lines)
