"""Gaussians on disk give the same scores as in memory."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from difficulty_service.base.errors import StatisticsError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.gaussian import Gaussians
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scoring.fitted_gaussians import load_gaussians, save_gaussians

DESCRIPTION = FeatureDescription(
    class_names=("a", "b"), num_shards=1, augment_runs=0, backbone="builtin"
)


def make_gaussians() -> Gaussians:
    features = torch.randn(80, 5, generator=torch.Generator().manual_seed(0)).double()
    return fit(features, torch.arange(80) % 3, 4, FitOptions(shrinkage="oas"))


def test_loaded_gaussians_score_bit_for_bit_as_before(tmp_path: Path) -> None:
    gaussians, features = make_gaussians(), torch.randn(9, 5).double()
    labels = torch.arange(9) % 3

    save_gaussians(tmp_path / "g", gaussians, DESCRIPTION)

    loaded, description = load_gaussians(tmp_path / "g")
    before = relative_mahalanobis(gaussians).rmd(features, labels)
    assert torch.equal(relative_mahalanobis(loaded).rmd(features, labels), before)
    assert loaded.options == gaussians.options
    assert loaded.warnings == gaussians.warnings
    assert description == DESCRIPTION


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StatisticsError, match="no Gaussians file"):
        load_gaussians(tmp_path / "nowhere")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    save_gaussians(tmp_path / "g", make_gaussians(), DESCRIPTION)
    whole = (tmp_path / "g").read_bytes()
    (tmp_path / "g").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(StatisticsError, match="g is damaged"):
        load_gaussians(tmp_path / "g")


@pytest.mark.parametrize("description", [{}, {"format_version": 1}, {"format_version": 3}])
def test_another_version_is_refused_by_name(tmp_path: Path, description: dict[str, int]) -> None:
    metadata = {"difficulty": json.dumps(description)}
    save_file({"weight": torch.zeros(2)}, tmp_path / "w", metadata)
    version = description.get("format_version")

    with pytest.raises(
        StatisticsError,
        match=rf"w is not a Gaussians file of version 2: its version is {version}; make it again",
    ):
        load_gaussians(tmp_path / "w")


def test_another_safetensors_file_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "w")

    with pytest.raises(StatisticsError, match="not a Gaussians file of version 2"):
        load_gaussians(tmp_path / "w")
