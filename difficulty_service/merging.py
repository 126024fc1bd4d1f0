"""Joins what was made apart: shares of a feature store, and Gaussians of several datasets."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from difficulty_service.errors import FeatureStoreError, StatisticsError
from difficulty_service.feature_store.store import (
    FeatureStore,
    create_store,
    differences,
    read_description,
)
from difficulty_service.scoring.score_store import MUST_AGREE
from difficulty_service.statistics.fit_options import FitOptions
from difficulty_service.statistics.gaussian import Gaussians, fit_gaussians
from difficulty_service.statistics.gaussian_file import load_gaussians
from difficulty_service.statistics.moments import merge

Fitted = tuple[Gaussians, Mapping[str, Any]]
"""Gaussians, and the description of the features they were fitted to."""


def merge_stores(folders: Sequence[Path], out: Path) -> FeatureStore:
    """One store of the parts that several runs made of the same dataset.

    Parts are linked where the file system can, so that terabytes need not be copied. A part that
    several stores have is the same in all of them, and is taken from the first.

    Args:
        folders: Stores of the same dataset, made alike; each may lack parts.
        out: Folder of the new store; an unfinished one is completed.

    Raises:
        FeatureStoreError: They were made otherwise, and the message names each difference; or
            parts are missing from all of them.
    """
    stores = [FeatureStore(folder, read_description(folder)) for folder in folders]
    first = stores[0]
    for store in stores[1:]:
        if found := differences(first.description, store.description):
            raise FeatureStoreError(
                f"{store.folder} was made otherwise than {first.folder}: {found}"
            )
    holders = {
        shard: store
        for store in reversed(stores)
        for shard in set(range(first.num_parts)) - set(store.missing_parts())
    }
    missing = [shard for shard in range(first.num_parts) if shard not in holders]
    if missing:
        raise FeatureStoreError(
            f"{len(missing)} of {first.num_parts} parts are in none of the stores, the first is "
            f"{first.part_file(missing[0]).name}; finish the runs that make them, or name their "
            "stores too"
        )
    merged = create_store(out, first.description)
    for shard in merged.missing_parts():
        _link_or_copy(holders[shard].part_file(shard), merged.part_file(shard))
    merged.write_errors(merged.bad_images())
    return merged


def merge_gaussians(files: Sequence[Path]) -> Fitted:
    """Gaussians as if they had been fitted to all the datasets at once.

    Args:
        files: Of datasets with the same classes, whose features were made alike. The first one's
            shrinkage counts for all.

    Raises:
        StatisticsError: They differ in what their features are, in classes or in augmentation, and
            the message names it; or their shrinkage needs the features themselves.
    """
    fitted = [load_gaussians(file) for file in files]
    first, described = fitted[0]
    for file, (gaussians, other) in zip(files[1:], fitted[1:], strict=True):
        _require_alike(files[0], described, file, other)
        if gaussians.options.runs != first.options.runs:
            raise StatisticsError(
                f"{file} was fitted to {gaussians.options.runs} rows a sample, {files[0]} to "
                f"{first.options.runs}; extract both with the same --augment-runs"
            )
    options = _mergeable(first.options)
    merged = fit_gaussians(merge([gaussians.moments for gaussians, _ in fitted]), options)
    return merged, _describe([each for _, each in fitted])


def _require_alike(
    first: Path, described: Mapping[str, Any], file: Path, other: Mapping[str, Any]
) -> None:
    keys = (*MUST_AGREE, "class_names")
    found = differences(
        {key: described.get(key) for key in keys}, {key: other.get(key) for key in keys}
    )
    if found:
        raise StatisticsError(f"{file} and {first} were fitted to other features: {found}")


def _mergeable(options: FitOptions) -> FitOptions:
    """The first one's options, unless its shrinkage is no function of the moments."""
    if options.shrinkage == "ledoit-wolf":
        raise StatisticsError(
            "the Ledoit-Wolf intensity needs a pass over the features; fit the Gaussians with "
            "--shrinkage auto, oas or a number, or merge the stores and fit them once"
        )
    return options


def _describe(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the merged Gaussians say of their features."""
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
