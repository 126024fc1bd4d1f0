"""Joins Gaussians that were fitted to several datasets."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from difficulty_service.errors import Setting, StatisticsError
from difficulty_service.feature_description import FeatureDescription
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.statistics.gaussian import fit_gaussians
from difficulty_service.statistics.moments import merge
from difficulty_service.statistics.ridge import needs_ridge


def merge_gaussians(files: Sequence[Path]) -> FittedGaussians:
    """Gaussians as if they had been fitted to all the datasets at once.

    Args:
        files: Gaussians of datasets with the same classes and the same kind of features. The
            shrinkage of the first file applies to all. Where a ridge is needed, it is the smallest
            one of any file, and features are not scaled to unit length, because each file did so
            around another point.

    Raises:
        StatisticsError: The files differ in kind of features, classes or augmentation, and the
            message names each difference; or their shrinkage needs the features themselves.
    """
    fitted = [FittedGaussians.load(file) for file in files]
    for file, each in zip(files[1:], fitted[1:], strict=True):
        _require_same_kind(files[0], fitted[0], file, each)
    options = fitted[0].gaussians.options
    if options.shrinkage == "ledoit-wolf":
        raise StatisticsError(
            "the Ledoit-Wolf intensity needs a pass over the features",
            "fit the Gaussians with ",
            Setting("shrinkage", "auto"),
            ", oas or a number, or merge the stores and fit them once",
            parameter="shrinkage",
        )
    moments = merge([each.gaussians.moments for each in fitted])
    ridge = 0.0
    few = options.shrinkage == "auto" and needs_ridge(moments, options.runs)
    if few or options.shrinkage == "leave-one-out":
        # The best ridge needs the features; more samples need no larger one than any part did.
        ridges = [each.gaussians.within.ridge for each in fitted]
        ridge = min((ridge for ridge in ridges if ridge > 0), default=0.0)
    merged = fit_gaussians(moments, options, ridge=ridge)
    return FittedGaussians(merged, _describe([each.description for each in fitted]))


def _require_same_kind(
    first_file: Path, first: FittedGaussians, file: Path, second: FittedGaussians
) -> None:
    names = (f"in {first_file}", f"in {file}")
    different = first.description.kind_and_class_differences(second.description, names)
    if different:
        raise StatisticsError(
            f"{first_file} and {file} were fitted to other features ({'; '.join(different)})"
        )
    runs, other_runs = first.gaussians.options.runs, second.gaussians.options.runs
    if runs != other_runs:
        raise StatisticsError(
            f"{file} was fitted to {other_runs} rows per sample, {first_file} to {runs}",
            "extract both with the same ",
            Setting("augment_runs"),
            parameter="augment_runs",
        )


def _describe(descriptions: Sequence[FeatureDescription]) -> FeatureDescription:
    """The description of the features of merged Gaussians."""
    prints = "\n".join(each.fingerprint for each in descriptions)
    first, *others = descriptions
    return first.joined(others, hashlib.sha256(prints.encode()).hexdigest())
