"""Gaussians with their description: warnings name classes, and files have the right ending."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, safe_open, save_file

from difficulty_service.errors import StatisticsError
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.statistics.fit_options import FitOptions
from difficulty_service.statistics.fitting import fit

NAMES = ["ant", "bee", "cat"]


def make_fitted() -> FittedGaussians:
    """Forty samples of two classes, and one of the third."""
    features = torch.randn(41, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.cat([torch.arange(40) % 2, torch.tensor([2])])
    return FittedGaussians(fit(features, labels, 3, FitOptions()), {"class_names": NAMES})


def test_classes_of_a_single_image_are_named() -> None:
    assert make_fitted().warnings[-1] == ("classes with a single image, which gets no score: cat")


def test_a_warning_of_version_0_1_that_names_them_by_number_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    make_fitted().save(path)
    with safe_open(path, framework="pt") as file:
        description = json.loads(file.metadata()["difficulty"])
    old = [*description["warnings"], "classes of a single sample get no score: labels [2]"]
    metadata = {"difficulty": json.dumps(description | {"warnings": old})}
    save_file(load_file(path), path, metadata)

    loaded = FittedGaussians.load(path)

    assert loaded.warnings == make_fitted().warnings


def test_another_ending_than_that_of_the_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StatisticsError, match=r"expected is \.safetensors"):
        make_fitted().save(tmp_path / "gaussians.npz")

    assert list(tmp_path.iterdir()) == []
