"""What a cleaned dataset lost by a condition on scores, without anybody having looked at it."""

import ast
import csv
from pathlib import Path

import pyarrow.parquet as pq

from difficulty_service.datasets.folder_tree import DROPPED_FILE
from difficulty_service.datasets.storage import is_uri

REASON = "reason"
"""Column of the list of dropped samples that says why."""


def dropped_unseen(location: str, names: frozenset[str] = frozenset()) -> int:
    """Number of samples that `difficulty clean` dropped from a dataset by a condition.

    It reads the list of dropped samples in the folder of a dataset, or beside its file; other
    datasets lost nothing that is known.

    Args:
        location: Where the dataset is.
        names: Conditions that have a name.
    """
    if is_uri(location):
        return 0
    path = Path(location)
    beside = path / DROPPED_FILE if path.is_dir() else path.with_suffix(f".dropped{path.suffix}")
    try:
        reasons = _reasons(beside)
    except (OSError, ValueError, csv.Error):  # not a list that `difficulty clean` wrote
        return 0
    return sum(reason in names or _is_condition(reason) for reason in reasons)


def _reasons(path: Path) -> list[str]:
    if path.suffix.lower() == ".parquet":
        column = pq.read_table(path, columns=[REASON])[REASON]
        return [str(each) for each in column.to_pylist() if each]
    with path.open(newline="", encoding="utf-8-sig") as file:
        return [row.get(REASON) or "" for row in csv.DictReader(file)]


def _is_condition(reason: str) -> bool:
    """Whether a reason compares a column; the others say which mark, copy or problem it was."""
    try:
        tree = ast.parse(reason.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Compare) for node in ast.walk(tree))
