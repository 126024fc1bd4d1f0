"""What the page says of encoders follows from the tables of their likelihoods."""

from pathlib import Path

import pytest
import torch

from benchmarks.evidence.encoders import (
    ENCODER_COLUMNS,
    SCALING_COLUMNS,
    SCALINGS,
    noisy_weights,
    scaled,
)
from benchmarks.evidence.page_of_encoders import AS_THEY_ARE, UNIT, encoders
from benchmarks.evidence.page_text import Tables
from benchmarks.evidence.tables import Row, write_rows
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions


def of_set(labels: str, found: dict[str, tuple[float, float]]) -> list[Row]:
    """Rows of a set of labels, from nats and AUROC of each encoder."""
    return [
        {
            "dataset": "photos",
            "labels": labels,
            "samples": "2000",
            "features": name,
            "nats": f"{nats:.3f}",
            "rmd_auroc": f"{auroc:.4f}",
        }
        for name, (nats, auroc) in found.items()
    ]


def test_the_page_says_what_the_likeliest_encoder_loses(tmp_path: Path) -> None:
    rows = of_set("moved", {"a": (-1, 0.95), "b": (-2, 0.90), "c": (-3, 0.80)})
    rows += of_set("planted", {"a": (-1.5, 0.91), "b": (-1.6, 0.915), "c": (-3, 0.80)})
    write_rows(tmp_path / "encoders.csv", ENCODER_COLUMNS, rows)

    section = encoders(Tables(tmp_path)).replace("\n", " ")

    assert "| photos, moved, 2,000 | a | 0.9500 | a | 0.9500 |" in section
    assert "| photos, planted, 2,000 | a | 0.9100 | b | 0.9150 |" in section
    assert "Of 3 encoders the likeliest loses at most 0.005 of AUROC to the best" in section
    assert "the likelier has the higher AUROC in 5 of 6 pairs" in section


def test_the_page_says_what_choosing_a_length_of_features_changes(tmp_path: Path) -> None:
    numbers = {UNIT: (-1.0, 0.90), AS_THEY_ARE: (-0.9, 0.91)}
    rows = [
        {**row, "scaling": scaling, "samples": samples}
        for samples in ("2000", "50000")
        for scaling, values in numbers.items()
        for row in of_set(samples, {"builtin": values})
    ]
    write_rows(tmp_path / "scalings.csv", SCALING_COLUMNS, rows)

    section = encoders(Tables(tmp_path)).replace("\n", " ")

    assert "unit length, which gives -0.010 (-0.010 to -0.010) of AUROC beside" in section
    assert "four lengths would give +0.010 (+0.010 to +0.010) more" in section
    assert "no ridge +0.000 (+0.000 to +0.000) beside" in section


def test_what_has_not_run_is_said_to_have_not(tmp_path: Path) -> None:
    assert "This has not run." in encoders(Tables(tmp_path))


def test_features_are_scaled_around_their_mean_or_the_origin() -> None:
    features = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) + 3
    offsets = features.double() - features.double().mean(dim=0)
    lengths = offsets.norm(dim=1)

    plain, half, unit, origin = (scaled(features, each) for each in SCALINGS)

    torch.testing.assert_close(plain, offsets)
    torch.testing.assert_close(half.norm(dim=1), lengths.sqrt())
    torch.testing.assert_close(unit.norm(dim=1), torch.ones_like(lengths))
    directions = torch.nn.functional.normalize(features.double(), dim=1)
    torch.testing.assert_close(origin, directions - directions.mean(dim=0))


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_an_encoder_is_made_worse_by_noise_on_its_weights(tmp_path: Path, strength: float) -> None:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    weights = noisy_weights(tmp_path, strength)

    usual, noisy = (
        load_backbone("builtin", BackboneOptions(weights=each)) for each in (None, str(weights))
    )
    same = torch.allclose(usual.encode(images), noisy.encode(images))
    assert same == (strength == 0)
