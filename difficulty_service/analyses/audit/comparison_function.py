"""`compare_scores`: two sets of scores of the same samples in, how far they agree out."""

from pathlib import Path

from difficulty_service.analyses.audit.score_comparison import ScoreComparison, columns_of
from difficulty_service.analyses.audit.score_comparison import compare_scores as compare
from difficulty_service.interface.scores import Scores, contents_of, warn


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
    comparison = compare(
        contents_of(first, columns), contents_of(second, columns), score_column, top
    )
    warn(comparison.warnings)
    return comparison
