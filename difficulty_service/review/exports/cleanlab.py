"""Label issues in the columns of cleanlab: whether, how likely, given and predicted label."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.tables import to_arrow
from difficulty_service.review.exports.samples import (
    Exported,
    class_list,
    label_scores,
    text_column,
)
from difficulty_service.review.sample_lists import write_table
from difficulty_service.scores.file import ScoreFile


def write_cleanlab(scores: ScoreFile, path: Path) -> Exported:
    """Writes a table with the columns of cleanlab's label issues, in the order of the samples.

    Args:
        scores: The score file.
        path: CSV or Parquet file.

    Raises:
        CleaningError: The name of the file ends in neither.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise CleaningError(
            f"{path} is neither CSV nor Parquet",
            "end the name in .csv or .parquet",
            parameter="out",
        )
    table = scores.table
    names = pa.array(class_list(scores), pa.string())
    issues = pa.table(
        {
            "sample_id": table["sample_id"],
            "is_label_issue": pc.fill_null(pc.greater(scores.column("label_margin"), 0.0), False),  # noqa: FBT003
            "label_score": to_arrow(label_scores(scores)),
            "given_label": table["label"],
            "predicted_label": table["nearest_label"],
            "given_label_name": text_column(table, "label_name"),
            "predicted_label_name": names.take(table["nearest_label"].combine_chunks()),
        }
    )
    write_table(issues, path)
    unknown = issues["label_score"].null_count
    return Exported([f"{unknown:,} samples have no label score"] if unknown else [])
