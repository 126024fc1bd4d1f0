"""Reliability diagrams are pictures of the bins of the ECE."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.reports.diagrams import draw_reliability

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def words_of(path: Path) -> list[str]:
    """The texts of a picture: drawn as shapes, with the words in comments beside them."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def drawn_points(path: Path) -> int:
    """Number of points of single seeds, which alone have a white face and a thin edge."""
    return path.read_text().count("fill: #ffffff; stroke: #000000; stroke-width: 0.6")


@pytest.fixture
def half_right() -> tuple[Tensor, Tensor]:
    """Four samples, all with confidence 0.75, of which two are right."""
    logits = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log().repeat(4, 1)
    return logits, torch.tensor([0, 0, 1, 1])


def test_a_png_is_a_picture(tmp_path: Path, half_right: tuple[Tensor, Tensor]) -> None:
    path = tmp_path / "reliability.png"

    draw_reliability({"one": [half_right]}, path)

    data = path.read_bytes()
    assert data.startswith(PNG_SIGNATURE)
    assert len(data) > 5000
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_the_title_gives_name_and_both_calibration_errors(
    tmp_path: Path, half_right: tuple[Tensor, Tensor]
) -> None:
    path = tmp_path / "reliability.svg"

    draw_reliability({"mine & yours": [half_right]}, path)

    words = words_of(path)
    assert "mine &amp; yours" in words
    assert "ECE 25.00%" in words
    assert any(word.startswith("adaptive ECE ") for word in words)


def test_a_name_is_never_read_as_a_formula(
    tmp_path: Path, half_right: tuple[Tensor, Tensor]
) -> None:
    draw_reliability({r"$\frac$": [half_right]}, tmp_path / "reliability.svg")

    assert r"$\frac$" in (tmp_path / "reliability.svg").read_text()


def test_the_same_predictions_give_the_same_file(
    tmp_path: Path, half_right: tuple[Tensor, Tensor]
) -> None:
    for name in ("one.svg", "two.svg"):
        draw_reliability({"a": [half_right]}, tmp_path / name)

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.slow
def test_five_classifiers_take_two_rows(tmp_path: Path, half_right: tuple[Tensor, Tensor]) -> None:
    def height(names: str) -> int:
        path = tmp_path / f"{names}.png"
        draw_reliability({name: [half_right] for name in names}, path)
        return int.from_bytes(path.read_bytes()[20:24], "big")

    for_the_legend = 2 * height("abcd") - height("abcde")

    assert height("abc") == height("abcd")
    assert 0 < for_the_legend < height("abcd") / 4


@pytest.mark.slow
def test_the_legend_names_every_mark_also_the_hatching(
    tmp_path: Path, half_right: tuple[Tensor, Tensor]
) -> None:
    marks = ("calibrated", "gap to the mean confidence")

    draw_reliability({"one": [half_right]}, tmp_path / "one.svg")
    draw_reliability({"one": [half_right], "two": [half_right] * 2}, tmp_path / "two.svg")

    words = {name: words_of(tmp_path / f"{name}.svg") for name in ("one", "two")}
    assert all(words[name].count(mark) == 1 for name in words for mark in marks)
    # The vertical axis of each panel has the same word.
    assert (words["one"].count("accuracy"), words["two"].count("accuracy")) == (2, 3)
    assert "accuracy of one seed" not in words["one"]
    assert words["two"].count("accuracy of one seed") == 1


def test_all_seeds_are_drawn_and_their_errors_averaged(tmp_path: Path) -> None:
    certain = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log().repeat(4, 1)
    # Seeds whose gaps cancel: accuracy 0.5 and 1 at confidence 0.75.
    seeds = [(certain, torch.tensor([0, 0, 1, 1])), (certain, torch.tensor([0, 0, 0, 0]))]

    draw_reliability({"both": seeds}, tmp_path / "both.svg")
    draw_reliability({"first": seeds[:1]}, tmp_path / "first.svg")

    assert "ECE 25.00% ± 0.00%" in words_of(tmp_path / "both.svg")
    assert "ECE 25.00%" in words_of(tmp_path / "first.svg")
    # One more is in the legend.
    assert drawn_points(tmp_path / "both.svg") == 3
    assert drawn_points(tmp_path / "first.svg") == 0


@pytest.mark.parametrize("name", ["reliability.gif", "reliability"])
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, half_right: tuple[Tensor, Tensor], name: str
) -> None:
    with pytest.raises(MetricError, match=r"ends in \.png or \.svg"):
        draw_reliability({"one": [half_right]}, tmp_path / name)


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="0 classifiers"):
        draw_reliability({}, tmp_path / "reliability.png")
