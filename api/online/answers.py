"""What the process that scores samples answers; importable without torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """An error of the work, which the process has survived."""

    error: Exception
