"""`compare_scores`: two sets of scores of the same samples in, how far they agree out.

`consensus`: scores or features of several backbones in, their common scores out.
"""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.analyses.audit.score_comparison import ScoreComparison, columns_of
from difficulty_service.analyses.audit.score_comparison import compare_scores as compare
from difficulty_service.analyses.consensus.consensus import consensus_of, rank_consensus
from difficulty_service.base.errors import ScoreFileError
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.scores.file import ScoreFile, read_scores


def compare_scores(
    first: Scores | str | Path,
    second: Scores | str | Path,
    *,
    score_column: str = "rmd",
    top: int = 20,
) -> ScoreComparison:
    """Compares two sets of scores, as of two backbones, of the same samples.

    Args:
        first: Scores, or the path of a score file.
        second: Scores to compare with them; samples are matched by their ids.
        score_column: Column to compare; larger is harder.
        top: Number of samples to list that moved most.

    Returns:
        What `difficulty compare-scores` shows: the rank correlation with its interval, shared hard
        samples and doubtful labels, classes, and the samples that moved most.

    Raises:
        AuditError: A column is missing, no sample is in both, or those in both are too few or have
            no order.
        ScoreFileError: A score file cannot be read.
    """
    columns = columns_of(score_column)
    comparison = compare(_contents(first, columns), _contents(second, columns), score_column, top)
    warn(comparison.warnings)
    return comparison


FEWEST = 2


def consensus(*inputs: Scores | str | Path) -> Scores:
    """Combines what several backbones say about the same samples, as `difficulty consensus` does.

    Args:
        *inputs: At least two: folders of features, whose log-densities are averaged, which finds
            a little more; or scores and score files, whose ranks are averaged. Samples are matched
            by their ids; those that not all inputs have are left out with a warning.

    Raises:
        ScoreFileError: There are fewer than two inputs, some are features and some are not, or a
            score file cannot be read.
        FeatureStoreError: Features are incomplete or damaged.
        UnmatchedScores: The inputs have no sample in common, or different labels.
        StatisticsError: The features of an input allow no trustworthy Gaussian.
    """
    if len(inputs) < FEWEST:
        raise ScoreFileError(f"a consensus of {len(inputs)} inputs", "give at least two")
    if any(isinstance(each, Scores) for each in inputs):
        result = rank_consensus(
            {f"input {number}": _contents(each) for number, each in enumerate(inputs, start=1)}
        )
    else:
        result = consensus_of([Path(str(each)) for each in inputs])
    scores = Scores(result)
    warn(scores.warnings)
    return scores


def _contents(scores: Scores | str | Path, columns: Sequence[str] | None = None) -> ScoreFile:
    """What scores hold, or some columns of a score file."""
    if isinstance(scores, Scores):
        return ScoreFile(scores.table, scores.provenance)
    return read_scores(Path(scores), columns)
