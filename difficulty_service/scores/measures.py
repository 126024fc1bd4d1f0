"""The column of a score file by which samples are ordered."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.base.tables import to_numpy
from difficulty_service.features.array_files import is_array_file
from difficulty_service.features.description import is_store
from difficulty_service.marks.record import ID_COLUMN
from difficulty_service.scores.file import read_score_schema, read_scores
from difficulty_service.scores.score_columns import measure_of, require_columns

IDS_SHOWN = 3
"""Number of ids that a message names."""


def read_measure(path: Path, column: str | None) -> pa.Table:
    """Columns `sample_id` and `score` of a score file.

    Args:
        column: Column of the score; None for the difficulty.

    Raises:
        ScoreFileError: It is no score file, or has no such column of numbers.
    """
    if is_store(path) or is_array_file(path):
        raise ScoreFileError(
            f"{path} holds features and no scores",
            f"make some with `difficulty score {path} --out scores.parquet`, and name that file",
        )
    names = read_score_schema(path).names
    column = column or measure_of(names)
    require_columns([column], names, str(path), parameter="by")
    return measure_table(read_scores(path, [ID_COLUMN, column]).table, column)


def measure_table(table: pa.Table, column: str | None) -> pa.Table:
    """Columns `sample_id` and `score` of the table of scores; as `read_measure`."""
    column = column or measure_of(table.column_names)
    require_columns([column], table.column_names, "the scores", parameter="by")
    kind = table.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ScoreFileError(
            f"the column {column} has no numbers, but {kind}",
            "name another column",
            parameter="by",
        )
    return pa.table({ID_COLUMN: table[ID_COLUMN], "score": table[column]})


def scores_of(sample_ids: pa.StringArray, measure: pa.Table, name: str) -> NDArray[np.float64]:
    """Score of each sample; NaN where there is none. Shape (samples,).

    Args:
        measure: Columns `sample_id` and `score`.
        name: What the user calls the samples.

    Raises:
        ScoreFileError: The scores are of none of the samples.
    """
    known = measure[ID_COLUMN].cast(pa.string()).combine_chunks()
    rows = pc.index_in(sample_ids, value_set=known)
    if 0 < len(rows) == rows.null_count:
        raise ScoreFileError(
            f"the scores are of no sample of {name}: their ids look like "
            f"{known[:IDS_SHOWN].to_pylist()}, those of the samples like "
            f"{sample_ids[:IDS_SHOWN].to_pylist()}",
            "score these samples, with the same ids",
            parameter="scores",
        )
    return to_numpy(measure["score"].cast(pa.float64()).combine_chunks().take(rows))
