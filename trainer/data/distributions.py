"""Distributions over the classes from a column of a table: what several people voted."""

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.recognition import detect_kind
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.table import list_table
from difficulty_service.datasets.table_columns import TEXT_NAMES
from difficulty_service.datasets.table_files import find_tables, open_table_file, read_columns
from trainer.config import FeatureData, ImageData, TextData
from trainer.data.texts import find_text_column
from trainer.own_code import is_object
from trainer.samples import Samples

AGREES = 0.5
"""Fraction of samples whose label has the most votes, below which the order must be another."""


def read_distributions(
    samples: Samples, config: ImageData | FeatureData | TextData, column: str
) -> Tensor:
    """Reads the distribution of each sample from a column of its dataset, joined by sample id.

    A cell is a list with a number for each class, in the order of the classes: counts of votes, or
    shares.

    Returns:
        Shares that sum to 1, float32. Shape (samples, classes).

    Raises:
        DatasetError: The dataset is no table, or its cells are no such lists.
    """
    location = config.labels if isinstance(config, FeatureData) else config.train
    if location is None or is_object(location) or detect_kind(location) != "table":
        raise DatasetError(
            f"data.distribution_column = {column!r} is a column of a table, and {location!r} is "
            "none",
            "give a Parquet or JSON Lines file",
        )
    ids, cells = _read(location, config, column)
    num_classes = len(samples.class_names)
    shares = _shares(cells, num_classes, f"{column!r} of {location!r}", ids)
    row_of = {sample_id: row for row, sample_id in enumerate(ids)}
    rows = np.array([row_of[sample_id] for sample_id in samples.sample_ids])
    chosen = shares[rows]
    agrees = float((chosen.argmax(axis=1) == samples.labels.numpy()).mean())
    if agrees < AGREES:
        raise DatasetError(
            f"column {column!r} of {location!r} has most votes for the label of only {agrees:.0%} "
            "of the samples",
            f"give its numbers in the order of the classes, {list(samples.class_names[:5])}, ...",
        )
    return torch.from_numpy(chosen).float()


def _read(
    location: str, config: ImageData | FeatureData | TextData, column: str
) -> tuple[list[str], pa.ChunkedArray]:
    """The ids of the samples of a table, and their cells of a column."""
    files = find_tables(location, config.split).files
    columns = tuple(each for each in (column, config.id_column) if each)
    tables = [open_table_file(file, file.place.name, columns) for file in files]
    # As where the samples were listed: ids may depend on which column the samples are.
    if isinstance(config, TextData):
        own: str | None = find_text_column(tables[0], config.text_column, TEXT_NAMES)
    else:
        own = config.image_column
    options = DatasetOptions(
        split=config.split,
        image_column=own,
        label_column=config.label_column,
        id_column=config.id_column,
    )
    listed = list_table(location, options)
    chunks = [chunk for each in tables for chunk in read_columns(each, [column])[column].chunks]
    cells = pa.chunked_array(chunks).take(pa.array(listed.rows.rows))
    return list(listed.listing.sample_ids), cells


def _shares(
    cells: pa.ChunkedArray, num_classes: int, title: str, ids: list[str]
) -> NDArray[np.float64]:
    """Shares of cells, checked. Shape (samples, classes)."""
    kind = cells.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list and not pa.types.is_fixed_size_list(kind):
        raise DatasetError(f"column {title} holds {kind}", "give a list of numbers per sample")
    values = cells.to_pylist()
    wrong = [
        row
        for row, votes in enumerate(values)
        if votes is None or len(votes) != num_classes or not _are_votes(votes)
    ]
    if wrong:
        raise DatasetError(
            f"column {title} is no distribution over {num_classes} classes for {len(wrong):,} of "
            f"{len(values):,} samples, first {ids[wrong[0]]!r}: {values[wrong[0]]}",
            f"give {num_classes} numbers of zero or more, not all of them zero",
        )
    votes = np.array(values, dtype=np.float64)
    return votes / votes.sum(axis=1, keepdims=True)


def _are_votes(votes: list[float | None]) -> bool:
    return all(each is not None and 0 <= each < float("inf") for each in votes) and any(votes)
