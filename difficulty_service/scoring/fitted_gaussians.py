"""Gaussians together with the description of the features they were fitted to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from difficulty_service.errors import StatisticsError
from difficulty_service.feature_description import FeatureDescription
from difficulty_service.files.output_path import require_output_file
from difficulty_service.files.wording import list_names
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
    description: FeatureDescription

    @property
    def warnings(self) -> list[str]:
        """Warnings for whoever will score with them, one sentence each, with classes by name."""
        single = self.gaussians.single_sample_classes
        if not single:
            return list(self.gaussians.warnings)
        names = self.description.class_names
        return [
            *self.gaussians.warnings,
            "classes with a single image, which gets no score: "
            + list_names([names[label] for label in single]),
        ]

    @staticmethod
    def require_file_name(path: Path) -> None:
        """Raises StatisticsError where Gaussians cannot be written to a path, such as a folder."""
        require_output_file(path, (".safetensors", ""), StatisticsError)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file that `save` wrote.

        Raises:
            StatisticsError: The file is missing, damaged or not a file of Gaussians.
        """
        return cls(*load_gaussians(path))

    def save(self, path: Path) -> None:
        """Writes a safetensors file; it appears whole or not at all.

        Raises:
            StatisticsError: `require_file_name` refuses the name.
        """
        self.require_file_name(path)
        save_gaussians(path, self.gaussians, self.description)
