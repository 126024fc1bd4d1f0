"""`ds.compare_scores` and `ds.explain` are the commands, for scores that a program holds."""

from pathlib import Path

import pytest
from scipy.stats import spearmanr

import difficulty_service as ds
from difficulty_service.interface.scores import Scores

pytestmark = pytest.mark.analysis("audit")


def test_scores_in_memory_and_in_files_are_compared_alike(
    scores: Scores, noisy: Scores, tmp_path: Path
) -> None:
    expected = spearmanr(scores["rmd"].to_numpy(), noisy["rmd"].to_numpy()).statistic

    first, second = scores.save(tmp_path / "a.parquet"), str(noisy.save(tmp_path / "b.csv"))
    with pytest.warns(UserWarning, match="fingerprints differ"):
        comparison = ds.compare_scores(scores, noisy, top=3)
    with pytest.warns(UserWarning, match="fingerprints differ"):
        of_files = ds.compare_scores(first, second, top=3)

    assert comparison.spearman == pytest.approx(expected)
    assert len(comparison.moves) == 3
    assert of_files == comparison


def test_another_column_is_compared_by_its_name(scores: Scores) -> None:
    assert ds.compare_scores(scores, scores, score_column="md").spearman == pytest.approx(1)
    with pytest.raises(ds.errors.AuditError, match="votes"):
        ds.compare_scores(scores, scores, score_column="votes")


def test_only_a_clip_explains_scores(scores: Scores) -> None:
    with pytest.raises(ds.errors.BackboneError, match="no text encoder"):
        ds.explain(scores, backbone="builtin")
    with pytest.raises(ds.errors.BackboneError, match="share no space with words"):
        ds.explain(scores, features="penultimate")
    with pytest.raises(TypeError, match="did you mean 'device'"):
        ds.explain(scores, devise="cpu")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("attributes", "message"), [(["one"], "has 1 attributes"), (["a", "a"], "more than once")]
)
def test_phrases_that_cannot_be_compared_are_named(
    scores: Scores, attributes: list[str], message: str
) -> None:
    with pytest.raises(ds.errors.AuditError, match=message):
        ds.explain(scores, attributes=attributes)
