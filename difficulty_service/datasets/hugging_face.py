"""Hugging Face datasets: `hf:NAME` or `hf:NAME@CONFIG` on the hub, or saved to disk."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.datasets.detection import HUB_PREFIX
from difficulty_service.datasets.image_openers import cell_opener
from difficulty_service.datasets.labels import Describe, index_labels
from difficulty_service.datasets.listing import Listing, build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import StoredPath, resolve
from difficulty_service.datasets.table_columns import (
    TableColumns,
    choose_columns,
    holds_text,
    sample_ids_of,
)
from difficulty_service.errors import DatasetError, MissingPackage, Setting

_ROWS_PER_READ = 64
_ROWS_PER_SIZES = 16_384


def open_hugging_face(location: str, options: DatasetOptions) -> Dataset:
    """Opens a dataset of the hub, through the cache of `datasets`, or one from `save_to_disk`.

    Args:
        location: `hf:NAME`, `hf:NAME@CONFIG`, or the path of a folder.
        options: Options, all of which apply; a dataset with several splits needs a split.

    Raises:
        DatasetError: The dataset does not exist, the hub cannot be reached, or columns or labels
            are invalid.
        DuplicateSampleId: Two rows have the same id.
        MissingPackage: The package `datasets` is not installed.
    """
    check_options(options, "a Hugging Face dataset", unused=())
    if options.boundary is not None:
        # Its rows are in a cache or refer to arbitrary files, so no boundary can contain them.
        raise DatasetError(
            f"{location!r} is a Hugging Face dataset, which cannot be read within a boundary",
            "save it as Parquet tables",
            parameter="location",
        )
    return open_rows(*_load(location, options.split), location, options)


def open_rows(
    rows: Any,  # noqa: ANN401 - the package ships no types
    place: StoredPath,
    location: str,
    options: DatasetOptions,
) -> Dataset:
    """Opens a `datasets.Dataset` that is loaded; its images stay encoded.

    Args:
        rows: The dataset.
        place: Folder that relative image paths are relative to.
        location: Description of where it comes from.
        options: Options; the split has been chosen already.

    Raises:
        DatasetError: Columns or labels are invalid.
        DuplicateSampleId: Two rows have the same id.
    """
    schema = rows.features.arrow_schema
    columns = choose_columns(schema, replace(options, split=None), repr(location))
    split = str(rows.split or "data")
    texts = rows.select_columns(columns.of_labels()).with_format("arrow")[:]

    def describe(position: int) -> str:
        return f"{split}#{position}"

    class_names, labels = _index_labels(rows, texts, columns, describe)
    images = rows.select_columns([columns.image]).with_format("arrow")
    listing = Listing(
        class_names,
        sample_ids_of(texts, columns, map(describe, range(len(labels))), describe),
        labels,
        _sizes(images, columns.image),
    )
    open_at = partial(_open_at, images, columns.image, place)
    return build_dataset(location, options, listing, open_at, describe)


def _package() -> Any:  # noqa: ANN401 - the package ships no types
    try:
        import datasets
    except ImportError as error:
        raise MissingPackage(
            "reading a Hugging Face dataset needs the package `datasets`, which is not installed",
            "pip install 'difficulty-service[hugging-face]'",
            parameter="location",
        ) from error
    return datasets


def _load(location: str, split: str | None) -> tuple[Any, StoredPath]:
    """Loads the rows and the folder that relative image paths are relative to."""
    package = _package()
    if location.startswith(HUB_PREFIX):
        return _load_from_hub(package, location, split), resolve(".")
    place = resolve(location)
    if not place.is_local:
        raise DatasetError(
            f"{location!r} was made by save_to_disk and cannot be read on remote storage",
            "save it as Parquet files there, or use a local copy",
            parameter="location",
        )
    try:
        dataset = package.load_from_disk(place.path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DatasetError(f"{location!r} cannot be read: {error}", "save it again") from error
    if isinstance(dataset, package.DatasetDict):
        return dataset[choose_split(list(dataset), split, location)], place
    if split not in (None, str(dataset.split)):
        raise DatasetError(
            f"{location!r} holds {dataset.split or 'one unnamed split'}, not {split!r}",
            "leave out ",
            Setting("split"),
            parameter="split",
        )
    return dataset, place


def _load_from_hub(
    package: Any,  # noqa: ANN401
    location: str,
    split: str | None,
) -> Any:  # noqa: ANN401
    name, _, config = location.removeprefix(HUB_PREFIX).partition("@")
    try:
        splits = package.get_dataset_split_names(name, config or None)
        chosen = choose_split(splits, split, location)
        return package.load_dataset(name, config or None, split=chosen)
    except (OSError, ValueError, RuntimeError, package.exceptions.DatasetsError) as error:
        raise DatasetError(
            f"{location!r} cannot be loaded: {error}",
            "check the name, the network and, for a private dataset, `hf auth login`; a dataset "
            "with configurations is hf:NAME@CONFIG",
            parameter="location",
        ) from error


def choose_split(splits: list[str], split: str | None, location: str) -> str:
    """The split to read: the one that is named, or the only one.

    Raises:
        DatasetError: There is no such split, or none is named and there are several.
    """
    if split is None and len(splits) == 1:
        return splits[0]
    if split is None or split not in splits:
        what = "several splits" if split is None else f"no split {split!r}"
        raise DatasetError(
            f"{location!r} has {what}",
            f"choose one of {splits} as ",
            Setting("split"),
            parameter="split",
        )
    return split


def _index_labels(
    rows: Any,  # noqa: ANN401 - the package ships no types
    texts: pa.Table,
    columns: TableColumns,
    describe: Describe,
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    declared = getattr(rows.features[columns.label], "names", None)
    beside = None if declared or columns.label_name is None else texts.column(columns.label_name)
    source = f"label column {columns.label!r}"
    class_names, labels = index_labels(texts.column(columns.label), beside, source, describe)
    return (tuple(declared) if declared else class_names), labels


def _sizes(images: Any, column: str) -> NDArray[np.int64]:  # noqa: ANN401
    """Encoded bytes of each image, from the offsets alone; 0 for paths. Shape (samples,)."""
    parts = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(images), _ROWS_PER_SIZES):
        cells = images[start : start + _ROWS_PER_SIZES].column(column)
        if pa.types.is_struct(cells.type) and "bytes" in [field.name for field in cells.type]:
            cells = pc.struct_field(cells, "bytes")
        if holds_text(cells.type) or pa.types.is_struct(cells.type):
            parts.append(np.zeros(len(cells), dtype=np.int64))
        else:
            lengths = pc.fill_null(pc.binary_length(cells), 0)
            parts.append(lengths.to_numpy().astype(np.int64))
    return np.concatenate(parts)


def _open_at(
    images: Any,  # noqa: ANN401
    column: str,
    folder: StoredPath,
    positions: NDArray[np.int64],
) -> Iterator[ImageOpener]:
    for start in range(0, len(positions), _ROWS_PER_READ):
        rows = images[positions[start : start + _ROWS_PER_READ].tolist()]
        for cell in rows.column(column).to_pylist():
            yield cell_opener(cell, folder)
