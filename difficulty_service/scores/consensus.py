"""The consensus of several backbones, from their features or from their score files."""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.features.array_files import is_array_file, open_features
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scores.density_consensus import density_consensus
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.rank_consensus import rank_consensus


def consensus_of(inputs: Sequence[Path]) -> ScoreFile:
    """The consensus of features or of score files.

    Args:
        inputs: At least two different ones, all of them features as for `difficulty score`, or all
            of them score files.

    Raises:
        ScoreFileError: Some are features and some are not, or a score file cannot be read.
        FeatureStoreError: Features are incomplete or damaged.
        DatasetError: A file of features cannot be read.
        UnmatchedScores: The inputs have no sample in common, or different labels.
        StatisticsError: The features of an input allow no trustworthy Gaussian.
    """
    are_features = [path.is_dir() or is_array_file(path) for path in inputs]
    if all(are_features):
        stores = {str(path): open_features(path) for path in inputs}
        return density_consensus(stores, FitOptions())
    if any(are_features):
        features = inputs[are_features.index(True)]
        scores = inputs[are_features.index(False)]
        raise ScoreFileError(
            f"{features} holds features and {scores} does not",
            "give the features of every backbone, or the score file of every one",
        )
    return rank_consensus({str(path): read_scores(path) for path in inputs})
