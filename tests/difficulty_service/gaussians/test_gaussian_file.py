"""Gaussians on disk give the same scores as in memory."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from difficulty_service.base.errors import StatisticsError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.gaussians.fit_options import FitOptions, Shrinkage
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


def fit_few(shrinkage: Shrinkage, matmul_dtype: str = "auto", num_samples: int = 20) -> Gaussians:
    """Gaussians of a few float32 samples of 60 dimensions, of which the first vary most."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_samples) % 3
    features = 3 * torch.randn(3, 60, generator=generator)[labels]
    features += torch.randn(num_samples, 60, generator=generator) * torch.logspace(1, -1, 60)
    return fit(features, labels, 4, FitOptions(shrinkage, matmul_dtype))


@pytest.mark.parametrize("shrinkage", ["auto", "oas", "ledoit-wolf", 0.1])
def test_few_samples_are_kept_in_little_and_score_as_before(
    tmp_path: Path, shrinkage: Shrinkage
) -> None:
    gaussians = fit_few(shrinkage)
    features, labels = torch.randn(9, 60).double(), torch.arange(9) % 3

    save_gaussians(tmp_path / "g", gaussians, DESCRIPTION)

    loaded, _ = load_gaussians(tmp_path / "g")
    one_matrix = gaussians.moments.scatter.nbytes
    vectors = 2 * gaussians.class_means.nbytes
    assert (tmp_path / "g").stat().st_size < vectors + 3 * one_matrix * 20 / 60 + 4096
    torch.testing.assert_close(
        relative_mahalanobis(loaded).rmd(features, labels),
        relative_mahalanobis(gaussians).rmd(features, labels),
        rtol=1e-9,
        atol=1e-9,
    )
    torch.testing.assert_close(
        loaded.moments.scatter, gaussians.moments.scatter, rtol=1e-12, atol=1e-9
    )
    assert loaded.within.summary == gaussians.within.summary
    assert loaded.agnostic.summary == gaussians.agnostic.summary


def test_few_samples_are_whitened_alike_after_being_written_twice(tmp_path: Path) -> None:
    save_gaussians(tmp_path / "first", fit_few("auto"), DESCRIPTION)
    first, description = load_gaussians(tmp_path / "first")

    save_gaussians(tmp_path / "second", first, description)

    second, _ = load_gaussians(tmp_path / "second")
    assert torch.equal(second.within.whitening, first.within.whitening)
    assert torch.equal(second.agnostic.whitening, first.agnostic.whitening)


@pytest.mark.parametrize(
    "gaussians",
    [
        pytest.param(fit_few("auto", "float32"), id="float32 products hold noise of full rank"),
        pytest.param(fit_few("none"), id="a truncated whitening map is no larger"),
        pytest.param(fit_few("auto", num_samples=40), id="a root would hardly be smaller"),
    ],
)
def test_whitening_maps_without_a_small_root_are_kept_bit_for_bit(
    tmp_path: Path, gaussians: Gaussians
) -> None:
    save_gaussians(tmp_path / "g", gaussians, DESCRIPTION)

    loaded, _ = load_gaussians(tmp_path / "g")
    assert torch.equal(loaded.within.whitening, gaussians.within.whitening)
    assert torch.equal(loaded.agnostic.whitening, gaussians.agnostic.whitening)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StatisticsError, match="no Gaussians file"):
        load_gaussians(tmp_path / "nowhere")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    save_gaussians(tmp_path / "g", make_gaussians(), DESCRIPTION)
    whole = (tmp_path / "g").read_bytes()
    (tmp_path / "g").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(StatisticsError, match="g is damaged"):
        load_gaussians(tmp_path / "g")


@pytest.mark.parametrize("description", [{}, {"format_version": 1}, {"format_version": 2}])
def test_another_version_is_refused_by_name(tmp_path: Path, description: dict[str, int]) -> None:
    metadata = {"difficulty": json.dumps(description)}
    save_file({"weight": torch.zeros(2)}, tmp_path / "w", metadata)
    version = description.get("format_version")

    with pytest.raises(
        StatisticsError,
        match=rf"w is not a Gaussians file of version 3: its version is {version}; make it again",
    ):
        load_gaussians(tmp_path / "w")


def test_another_safetensors_file_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "w")

    with pytest.raises(StatisticsError, match="not a Gaussians file of version 3"):
        load_gaussians(tmp_path / "w")
