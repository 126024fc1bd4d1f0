"""Types of a browser, whose package may be missing, and of what the fixtures give."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route
else:
    Browser = BrowserContext = Locator = Page = Route = Any

MakeContext = Callable[..., BrowserContext]
OpenPage = Callable[..., Page]
OpenAddress = Callable[[str], Page]
OpenMap = Callable[[Page], Page]
Points = dict[str, Any]
Places = Callable[[Page], np.ndarray]
DrawAround = Callable[..., list[int]]
MakeScored = Callable[..., Path]
RunWords = Callable[[str, Path], str]
Exploring = Callable[[str, Path], AbstractContextManager[str]]


@dataclass(frozen=True)
class Scored:
    """What a person has after the first command."""

    folder: Path  # folder in which the commands run
    output: str  # what the command printed
    seconds: float  # time that it took
    rows: list[dict[str, Any]]  # rows of the score file
    pictures: dict[str, bytes]  # the encoded image of every sample
