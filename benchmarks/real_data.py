"""The folder of real data and weights, which are no part of this project."""

import os
from pathlib import Path


def shared_folder() -> Path:
    """The folder that DIFFICULTY_SHARED names, or `../shared`."""
    return Path(os.environ.get("DIFFICULTY_SHARED", "../shared"))


def skipped(name: str) -> str:
    """Says that something is skipped because what has that name is not in the folder."""
    return f"skipped: {name} is not in {shared_folder()}; name its folder in DIFFICULTY_SHARED"
