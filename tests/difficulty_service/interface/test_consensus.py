"""`ds.consensus` is the command, for scores that a program holds too."""

from pathlib import Path

import numpy as np
import pytest

import difficulty_service as ds
from difficulty_service.interface.scores import Scores
from tests.overlapping_classes import FEATURES, LABELS

pytestmark = pytest.mark.analysis("consensus")


def test_scores_in_memory_and_in_files_have_the_same_consensus(
    scores: Scores, noisy: Scores, tmp_path: Path
) -> None:
    files = scores.save(tmp_path / "a.parquet"), noisy.save(tmp_path / "b.csv")

    in_memory, of_files = ds.consensus(scores, noisy), ds.consensus(*files)

    # Text holds single precision of the numbers that are of single precision.
    np.testing.assert_allclose(in_memory["rmd"].to_numpy(), of_files["rmd"].to_numpy(), atol=1e-6)
    first, second = (each["rmd"].to_numpy().argsort().argsort() for each in (scores, noisy))
    expected = (first + second) / 2 / (len(scores) - 1)
    np.testing.assert_allclose(in_memory["rmd"].to_numpy(), expected, atol=1e-6)
    assert in_memory.save(tmp_path / "c.parquet").exists()


def test_samples_that_one_input_lacks_are_left_out_with_a_warning(scores: Scores) -> None:
    fewer = ds.score(FEATURES[:-2], LABELS[:-2])

    with pytest.warns(UserWarning, match="2 samples of input 1 are not in every other input"):
        both = ds.consensus(scores, fewer)

    assert len(both) == len(scores) - 2


def test_one_input_has_no_consensus(scores: Scores) -> None:
    with pytest.raises(ds.errors.ScoreFileError, match="1 inputs; give at least two"):
        ds.consensus(scores)
