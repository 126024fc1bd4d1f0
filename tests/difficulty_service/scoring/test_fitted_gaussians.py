"""Gaussians with their description: warnings name classes, and files have the right ending."""

from pathlib import Path

import pytest
import torch

from difficulty_service.base.errors import StatisticsError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.scoring.fitted_gaussians import FittedGaussians

DESCRIPTION = FeatureDescription(class_names=("ant", "bee", "cat"), num_shards=1, augment_runs=0)


def make_fitted() -> FittedGaussians:
    """Forty samples of two classes, and one of the third."""
    features = torch.randn(41, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.cat([torch.arange(40) % 2, torch.tensor([2])])
    return FittedGaussians(
        fit(features, labels, 3, FitOptions()),
        DESCRIPTION,
    )


def test_classes_of_a_single_image_are_named() -> None:
    assert make_fitted().warnings[-1] == ("classes with a single image, which gets no score: cat")


def test_another_ending_than_that_of_the_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StatisticsError, match=r"expected is \.safetensors"):
        make_fitted().save(tmp_path / "gaussians.npz")

    assert list(tmp_path.iterdir()) == []
