"""All columns of a score file as CSV or JSON Lines."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from difficulty_service.cleaning.exports.samples import Exported, text_column
from difficulty_service.files.atomic_file import replacing
from difficulty_service.score_file import ScoreFile


def write_csv(scores: ScoreFile, path: Path) -> Exported:
    """Writes a CSV file with a header; a missing value is an empty cell."""
    table = scores.table.set_column(
        scores.table.schema.get_field_index("label_name"),
        "label_name",
        text_column(scores.table, "label_name"),
    )
    with replacing(path) as temporary:
        pyarrow.csv.write_csv(table, temporary)
    return Exported()


def write_jsonl(scores: ScoreFile, path: Path) -> Exported:
    """Writes one JSON object for each sample; a missing value is null."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for batch in scores.table.to_batches():
            file.writelines(_lines(batch))
    return Exported()


def _lines(batch: pa.RecordBatch) -> list[str]:
    return [json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist()]
