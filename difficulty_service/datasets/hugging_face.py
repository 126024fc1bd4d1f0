"""Hugging Face datasets: `hf:NAME` or `hf:NAME@CONFIG` on the hub, or saved to disk."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.extras import needs_extra
from difficulty_service.datasets.declared_names import names_of_feature
from difficulty_service.datasets.image_openers import cell_opener, text_opener
from difficulty_service.datasets.labels import index_labels, no_labels, several_labels_warning
from difficulty_service.datasets.listing import Listing, build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import StoredPath, resolve
from difficulty_service.datasets.table_columns import (
    choose_columns,
    columns_asked_for,
    holds_text,
    one_hot_labels,
    one_hot_note,
    sample_ids_of,
)
from difficulty_service.datasets.table_files import cause_in_storage

HUB_PREFIX = "hf:"

_ROWS_PER_READ = 64
_ROWS_PER_SIZES = 16_384


def open_hugging_face(location: str, options: DatasetOptions) -> Dataset:
    """Opens a dataset of the hub, through the cache of `datasets`, or one from `save_to_disk`.

    The location is `hf:NAME`, `hf:NAME@CONFIG`, or the path of a folder.
    """
    check_options(options, "a Hugging Face dataset", unused=())
    if options.boundary is not None:
        # Its rows are in a cache or refer to arbitrary files, so no boundary can contain them.
        raise DatasetError.of_location(
            f"{location!r} is a Hugging Face dataset, which cannot be read within a boundary",
            "save it as Parquet tables",
        )
    rows, place, split = _load(location, options.split)
    return open_rows(rows, place, location, replace(options, split=split))


def open_rows(
    rows: Any,  # noqa: ANN401 - the package ships no types
    place: StoredPath,
    location: str,
    options: DatasetOptions,
) -> Dataset:
    """Opens a `datasets.Dataset` that is loaded; its images stay encoded.

    Relative paths of images are relative to `place`. The split has been chosen already, and is the
    name in the ids.
    """
    split = options.split or str(rows.split or "data")
    schema = rows.features.arrow_schema

    def read(names: list[str]) -> pa.Table:
        return rows.select_columns(names).with_format("arrow")[:]

    columns = choose_columns(schema, replace(options, split=None), repr(location), read)
    names = columns.of_labels()
    texts = pa.table({"row": np.arange(len(rows))})
    if names:
        texts = read(names)

    def describe(row: int) -> str:
        return f"{split}#{row}"

    labels = no_labels(len(texts))
    if columns.label is not None:
        declared = names_of_feature(rows.features[columns.label])
        named = None if declared else columns.label_name
        beside = None if named is None else texts.column(named)
        source = f"label column {columns.label!r}"
        labels = index_labels(texts.column(columns.label), beside, source, describe, declared)
    elif columns.one_hot:
        named_columns = one_hot_labels(texts, columns.one_hot)
        labels = index_labels(named_columns, None, "the label", describe)
    ids = sample_ids_of(texts, columns, map(describe, range(len(texts))), describe)
    images = rows.select_columns([columns.image]).with_format("arrow")
    others = columns.other_labels
    listing = Listing(
        labels.class_names,
        [ids[row] for row in labels.rows.tolist()],
        labels.labels,
        _sizes(images, columns.image)[labels.rows],
        columns_asked_for(options),
        skipped=[(ids[row], reason) for row, reason in labels.unlabelled],
        warnings=(
            *labels.notes,
            *([one_hot_note(repr(location), columns.one_hot)] if columns.one_hot else []),
            *([several_labels_warning(columns.label, others)] if columns.label and others else []),
        ),
    )
    opener = text_opener if options.modality == "text" else partial(cell_opener, folder=place)
    open_at = partial(_open_at, images.__getitem__, columns.image, opener, labels.rows)

    def describe_sample(position: int) -> str:
        return describe(int(labels.rows[position]))

    return build_dataset(location, options, listing, open_at, describe_sample)


def require_package(action: str, parameter: str | None = None) -> Any:  # noqa: ANN401 - has no types
    """The package `datasets`, which reading and writing its datasets needs."""
    with needs_extra(f"{action} a Hugging Face dataset", "hugging-face", parameter=parameter):
        import datasets
    return datasets


def _load(location: str, split: str | None) -> tuple[Any, StoredPath, str]:
    """Loads the rows, the folder that image paths are relative to, and the name of the split."""
    package = require_package("reading", "location")
    if location.startswith(HUB_PREFIX):
        rows = _load_from_hub(package, location, split)
        return rows, resolve("."), str(rows.split or "data")
    place = resolve(location)
    if not place.is_local:
        raise DatasetError.of_location(
            f"{location!r} was made by save_to_disk and cannot be read on remote storage",
            "save it as Parquet files there, or use a local copy",
        )
    try:
        dataset = package.load_from_disk(place.path)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DatasetError(f"{location!r} cannot be read: {error}", "save it again") from (
            cause_in_storage(place, error)
        )
    if isinstance(dataset, package.DatasetDict):
        chosen = choose_split(list(dataset), split, location)
        return dataset[chosen], place, chosen
    if split not in (None, str(dataset.split)):
        raise DatasetError.leave_out(
            f"{location!r} holds {dataset.split or 'one unnamed split'}, not {split!r}", "split"
        )
    return dataset, place, str(dataset.split or "data")


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
        raise DatasetError.of_location(
            f"{location!r} cannot be loaded: {error}",
            "check the name, the network and, for a private dataset, `hf auth login`; a dataset "
            "with configurations is hf:NAME@CONFIG",
        ) from error


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
    read: Callable[[list[int]], pa.Table],
    column: str,
    opener: Callable[[object], ImageOpener],
    rows: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> Iterator[ImageOpener]:
    for start in range(0, len(positions), _ROWS_PER_READ):
        chosen = rows[positions[start : start + _ROWS_PER_READ]]
        yield from map(opener, read(chosen.tolist()).column(column).to_pylist())
