"""All columns of a score file as CSV or JSON Lines."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from difficulty_service.cleaning.exports.samples import Exported
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.table_formats import json_lines_writer, plain_schema
from difficulty_service.score_file import ScoreFile


def write_csv(scores: ScoreFile, path: Path) -> Exported:
    """Writes a CSV file with a header; a missing value is an empty cell."""
    table = scores.table.cast(plain_schema(scores.table.schema))
    with replacing(path) as temporary:
        pyarrow.csv.write_csv(table, temporary)
    return Exported()


def write_jsonl(scores: ScoreFile, path: Path) -> Exported:
    """Writes one JSON object for each sample; a missing value is null."""
    with replacing(path) as temporary, json_lines_writer(temporary, scores.table.schema) as write:
        for batch in scores.table.to_batches():  # a few thousand rows at a time become Python's
            write(pa.Table.from_batches([batch]))
    return Exported()
