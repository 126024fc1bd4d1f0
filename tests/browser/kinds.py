"""Types of what the fixtures give."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

Findings = Callable[["Page"], list[tuple[str, str]]]
"""Runs axe on a page; gives the rule and the first element of each finding."""

OpenPage = Callable[..., "Page"]
"""Opens a page; what it takes is said where it is a fixture."""
