"""Joins what several runs made: parts of a feature store, and Gaussians of several datasets."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from difficulty_service.errors import FeatureStoreError, Setting, StatisticsError
from difficulty_service.feature_store.errors_file import read_errors, write_errors
from difficulty_service.feature_store.store import (
    FREE_TO_CHANGE,
    FeatureStore,
    create_store,
    read_description,
)
from difficulty_service.files.differences import differences
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.same_features import FEATURE_KEYS
from difficulty_service.statistics.gaussian import fit_gaussians
from difficulty_service.statistics.moments import merge
from difficulty_service.statistics.ridge import needs_ridge


def merge_stores(folders: Sequence[Path], out: Path) -> FeatureStore:
    """One store of the parts that several runs extracted from the same dataset.

    Parts are hard-linked where the file system can do so, so that terabytes need not be copied. A
    part that several stores hold is the same in all of them, and is taken from the first.

    Args:
        folders: Stores of the same dataset, extracted with the same settings; parts may be missing
            from each of them.
        out: Folder of the new store; an incomplete one is completed.

    Raises:
        FeatureStoreError: The stores differ in their settings, and the message names each
            difference; or parts are missing from all of them.
    """
    stores = [FeatureStore(folder, read_description(folder)) for folder in folders]
    first = stores[0]
    for store in stores[1:]:
        _require_same_settings(first, store)
    holders = {
        shard: store
        for store in reversed(stores)
        for shard in set(range(first.num_parts)) - set(store.missing_parts())
    }
    missing = [shard for shard in range(first.num_parts) if shard not in holders]
    if missing:
        raise FeatureStoreError(
            f"{len(missing)} of {first.num_parts} parts are in none of the stores, the first is "
            f"{first.part_file(missing[0]).name}",
            "finish the runs that extract them, or name their stores too",
        )
    merged = create_store(out, first.description)
    for shard in merged.missing_parts():
        _link_or_copy(holders[shard].part_file(shard), merged.part_file(shard))
    bad_images = merged.bad_images()
    # Each run also listed what was skipped before there were parts.
    listed = dict.fromkeys(error for store in stores for error in read_errors(store.folder))
    unreadable = {(bad.sample_id, bad.reason) for bad in bad_images}
    skipped = [error for error in listed if (error.sample_id, error.reason) not in unreadable]
    write_errors(merged.folder, [*skipped, *bad_images])
    return merged


def _require_same_settings(first: FeatureStore, second: FeatureStore) -> None:
    names = (f"in {first.folder}", f"in {second.folder}")
    different = differences(
        first.description, second.description, names=names, ignored=FREE_TO_CHANGE
    )
    if different:
        raise FeatureStoreError(
            f"{first.folder} and {second.folder} were extracted with different settings "
            f"({'; '.join(different)})"
        )


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
    one, other = (
        {key: each.description.get(key) for key in (*FEATURE_KEYS, "class_names")}
        for each in (first, second)
    )
    different = differences(one, other, names=(f"in {first_file}", f"in {file}"))
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


def _describe(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The description of the features of merged Gaussians."""
    prints = "\n".join(str(each["fingerprint"]) for each in descriptions)
    return {
        **descriptions[0],
        "dataset": " + ".join(str(each["dataset"]) for each in descriptions),
        "fingerprint": hashlib.sha256(prints.encode()).hexdigest(),
        "num_samples": sum(int(each["num_samples"]) for each in descriptions),
    }


def _link_or_copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            os.link(source, temporary)
        except OSError:  # another disk, or a file system without links
            shutil.copyfile(source, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
