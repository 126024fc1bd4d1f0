"""`consensus`: scores or features of several backbones in, their common scores out."""

from pathlib import Path

from difficulty_service.analyses.consensus.consensus import consensus_of, rank_consensus
from difficulty_service.base.errors import ScoreFileError
from difficulty_service.interface.scores import Scores, contents_of, warn

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
            {f"input {number}": contents_of(each) for number, each in enumerate(inputs, start=1)}
        )
    else:
        result = consensus_of([Path(str(each)) for each in inputs])
    scores = Scores(result)
    warn(scores.warnings)
    return scores
