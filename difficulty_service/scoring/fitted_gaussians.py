"""Gaussians together with the description of the features they were fitted to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from difficulty_service.statistics.gaussian import Gaussians
from difficulty_service.statistics.gaussian_file import load_gaussians, save_gaussians


@dataclass(frozen=True)
class FittedGaussians:
    """All that is needed to score features, and to tell whether the scores would make sense.

    Attributes:
        gaussians: The fitted Gaussians.
        description: Description of the feature store they were fitted to.
    """

    gaussians: Gaussians
    description: Mapping[str, Any]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file that `save` wrote.

        Raises:
            StatisticsError: The file is missing, damaged or not a file of Gaussians.
        """
        return cls(*load_gaussians(path))

    def save(self, path: Path) -> None:
        """Writes a safetensors file; it appears whole or not at all."""
        save_gaussians(path, self.gaussians, self.description)
