"""ROC diagrams: one panel per detection, with the same file for the same curves."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from trainer.evaluation.record import NamedCurve, misclassification_curves, ood_curves
from trainer.reports.diagrams import draw_roc


def make_batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(50, 4, generator=generator), torch.arange(50) % 4


def make_curves() -> list[NamedCurve]:
    """The curves of two seeds, with two OOD datasets."""
    curves = []
    for seed in (0, 1):
        batch, others = make_batch(seed), make_batch(7)[0]
        curves += misclassification_curves(*batch)
        curves += ood_curves(batch[0], others, "photos/costs $5 or $6")
        curves += ood_curves(batch[0], others / 3, "photos/" + "deep/" * 20 + "end")
    return curves


@pytest.mark.slow
def test_the_same_curves_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("one", "two"):
        draw_roc(make_curves(), tmp_path / name)

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    with Image.open(tmp_path / "one.png") as picture:
        assert picture.width > 2 * picture.height


def test_every_detection_is_named_and_every_score_once_in_each_legend(tmp_path: Path) -> None:
    draw_roc(make_curves(), tmp_path / "roc")

    drawn = (tmp_path / "roc.svg").read_text()
    assert drawn.count("<!-- correct predictions against wrong ones -->") == 1
    assert drawn.count("<!-- OOD samples of photos/costs $5 or $6 -->") == 1
    assert drawn.count("<!-- OOD samples of …") == 1
    assert drawn.count("<!-- MSP -->") == 3
    assert drawn.count("<!-- max logit -->") == 2


def test_scaled_stages_are_not_drawn(tmp_path: Path) -> None:
    batch = make_batch(0)

    draw_roc(misclassification_curves(*batch), tmp_path / "raw")
    draw_roc(misclassification_curves(*batch, make_batch(1)), tmp_path / "all")

    assert (tmp_path / "raw.svg").read_bytes() == (tmp_path / "all.svg").read_bytes()
