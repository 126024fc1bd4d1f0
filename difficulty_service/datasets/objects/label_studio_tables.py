"""Regions in the CSV or TSV that Label Studio exports: a row for each annotation of a task.

A cell has the regions of a control as a list of JSON, without their ids and types, so that a region
is called by its place among all of the annotation, counted from 1.
"""

import json
import re
from collections import defaultdict
from typing import Any

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.labels import find_usual
from difficulty_service.datasets.objects.files import read_start
from difficulty_service.datasets.storage import StoredFile, StoredPath
from difficulty_service.datasets.table_columns import IMAGE_NAMES, EveryColumn
from difficulty_service.datasets.table_files import open_table_file
from difficulty_service.datasets.text_tables import first_cells

TABLES = (".csv", ".tsv")

_OWN = frozenset(
    ("id", "annotation_id", "annotator", "created_at", "updated_at", "lead_time", "comment")
)
"""Columns that are about the annotation."""

_TRIED_BYTES = 1 << 20
_REGION = re.compile(
    rb'"{1,2}(?:rectangle|polygon|brush|ellipse|keypoint|vector|bitmask)?labels"{1,2}\s*:\s*\['
)
_KIND = re.compile(r"[a-z]*labels")


def is_label_studio_table(place: StoredPath) -> bool:
    """Whether a file is such a table, of which one of the first rows has a region."""
    if not place.name.lower().endswith(TABLES):
        return False
    names = {*first_cells(place, place.name)}
    return "annotation_id" in names and bool(_REGION.search(read_start(place, _TRIED_BYTES)))


def tasks_of_table(place: StoredPath) -> str:
    """The tasks of a table, as the JSON that Label Studio exports of them.

    Raises:
        DatasetError: The table cannot be read, or has no column of images.
    """
    table = open_table_file(StoredFile(place, 0), place.name, EveryColumn(), multiline=True).rows
    rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
    names = [] if table is None else table.column_names
    others = [name for name in names if name not in _OWN]
    regions = [name for name in others if any(_regions(row[name]) for row in rows)]
    images = find_usual(IMAGE_NAMES, [name for name in others if name not in regions])
    if not images:
        raise DatasetError.of_location(
            f"{place.name!r} has no column of images; it has {list_names(names)}",
            "export the project as JSON, and name that",
        )
    tasks = defaultdict[str, list[dict[str, Any]]](list)
    for number, row in enumerate(rows):
        tasks[str(row.get("id") or f"row {number}")].append(row)
    every = [
        {
            "id": key,
            "data": {name: of_task[0][name] for name in images if of_task[0][name]},
            "annotations": [_annotation(row, regions) for row in of_task],
        }
        for key, of_task in tasks.items()
    ]
    return json.dumps(every, ensure_ascii=False)


def _annotation(row: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    values = [value for name in columns for value in _regions(row[name])]
    results = [
        {
            "id": str(number),
            "type": next((key for key in value if _KIND.fullmatch(key)), "rectangle"),
            "to_name": "image",
            "original_width": value.get("original_width"),
            "original_height": value.get("original_height"),
            "image_rotation": value.get("image_rotation", 0),
            "value": value,
        }
        for number, value in enumerate(values, 1)
    ]
    return {"updated_at": row.get("updated_at") or row.get("created_at"), "result": results}


def _regions(cell: object) -> list[dict[str, Any]]:
    """The regions in a cell; none where it holds something else."""
    if not isinstance(cell, str) or not cell.startswith("["):
        return []
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return []
    is_it = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    return [each for each in found if any(map(_KIND.fullmatch, each))] if is_it else []
