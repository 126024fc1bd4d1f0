"""Reliability diagrams are pictures of the bins of the ECE."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from difficulty_service.errors import MetricError
from trainer.reports.reliability_diagram import draw_reliability

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def half_right() -> tuple[Tensor, Tensor]:
    """Four samples, all with confidence 0.75, of which two are right."""
    logits = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log().repeat(4, 1)
    return logits, torch.tensor([0, 0, 1, 1])


def test_a_png_is_a_picture(tmp_path: Path, half_right: tuple[Tensor, Tensor]) -> None:
    path = tmp_path / "reliability.png"

    draw_reliability({"one": half_right}, path)

    data = path.read_bytes()
    assert data.startswith(PNG_SIGNATURE)
    assert len(data) > 5000
    assert list(tmp_path.iterdir()) == [path]


def test_the_title_gives_name_and_both_calibration_errors(
    tmp_path: Path, half_right: tuple[Tensor, Tensor]
) -> None:
    path = tmp_path / "reliability.svg"

    draw_reliability({"mine & yours": half_right}, path)

    # Text is drawn as shapes, but the words stand beside them in comments.
    words = path.read_text()
    assert "mine &amp; yours" in words
    assert "ECE 25.00%, adaptive ECE" in words


def test_a_name_is_never_read_as_a_formula(
    tmp_path: Path, half_right: tuple[Tensor, Tensor]
) -> None:
    draw_reliability({r"$\frac$": half_right}, tmp_path / "reliability.svg")

    assert r"$\frac$" in (tmp_path / "reliability.svg").read_text()


def test_the_same_predictions_give_the_same_file(
    tmp_path: Path, half_right: tuple[Tensor, Tensor]
) -> None:
    for name in ("one.svg", "two.svg"):
        draw_reliability({"a": half_right}, tmp_path / name)

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_five_classifiers_take_two_rows(tmp_path: Path, half_right: tuple[Tensor, Tensor]) -> None:
    def height(names: str) -> int:
        path = tmp_path / f"{names}.png"
        draw_reliability(dict.fromkeys(names, half_right), path)
        return int.from_bytes(path.read_bytes()[20:24], "big")

    assert height("abcde") == 2 * height("abcd")


@pytest.mark.parametrize("name", ["reliability.gif", "reliability"])
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, half_right: tuple[Tensor, Tensor], name: str
) -> None:
    with pytest.raises(MetricError, match=r"ends in \.png or \.svg"):
        draw_reliability({"one": half_right}, tmp_path / name)


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="0 classifiers"):
        draw_reliability({}, tmp_path / "reliability.png")
