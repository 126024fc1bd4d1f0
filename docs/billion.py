"""Writes the tables of docs/scaling.md about a billion images, from rates, bytes and prices.

Run: python docs/billion.py
"""

from pathlib import Path

from benchmarks.billion import Cluster, tables
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("scaling.md")


def page() -> str:
    """The page with the present numbers."""
    return with_parts(PAGE, "billion.py", {"billion": tables(Cluster())})


if __name__ == "__main__":
    PAGE.write_text(page())
