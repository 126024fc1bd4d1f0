"""Histograms show the scores and weights that a run used, and none that it did not use."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from difficulty_service.base.errors import MetricError
from tests.factories import write_score_file
from trainer.reports.diagrams import WeightsOfRun, draw_weights
from trainer.weights.formula import describe_weights, sample_weights

SCORES = [float(number) for number in range(40)]


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    """The record of a score file of forty samples."""
    scores = {f"{score:.0f}.png": score for score in SCORES}
    path = write_score_file(tmp_path / "scores.parquet", scores, backbone="builtin")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": str(path), "sha256": digest, "column": "rmd"}


@pytest.fixture
def distribution() -> dict[str, Any]:
    return describe_weights(sample_weights(torch.tensor(SCORES))).as_dict()


def words_of(path: Path) -> str:
    return path.read_text()


def test_scores_and_weights_are_drawn_and_labelled(
    tmp_path: Path, source: dict[str, Any], distribution: dict[str, Any]
) -> None:
    path = tmp_path / "weights.svg"

    draw_weights({"a $ b": WeightsOfRun([distribution], source)}, path)

    words = words_of(path)
    assert "a $ b" in words
    assert "difficulty: rmd, larger is harder" in words
    assert "weight of the entropy term" in words
    assert f"mean {distribution['mean']:.2f}" in words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sha256": "0" * 64}, "has changed"),
        ({"file": "nowhere/scores.parquet"}, "can no longer be read"),
    ],
)
def test_a_score_file_that_is_not_the_one_of_the_run_is_not_drawn(
    tmp_path: Path,
    source: dict[str, Any],
    distribution: dict[str, Any],
    change: dict[str, str],
    reason: str,
) -> None:
    path = tmp_path / "weights.svg"

    draw_weights({"run": WeightsOfRun([distribution], source | change)}, path)

    assert reason in words_of(path)


def test_no_run_with_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="0 runs with weights by scores"):
        draw_weights({}, tmp_path / "weights.png")
