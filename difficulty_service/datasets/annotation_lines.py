"""Rows in JSON of tools for annotation: what was rejected is no label, and names are elsewhere.

Prodigy writes the label that was shown, and beside it whether it was accepted. SageMaker Ground
Truth writes the number of a class, and its name in the metadata beside it. Label Studio writes
tasks, whose labels of whole images are deep inside, and tables of the same.
"""

import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.wording import count_of

LABEL = "label"

_ANSWER, _ACCEPTED, _CHOSEN = "answer", "accept", "accept"
_HASHES = {"_input_hash", "_task_hash"}
_IMAGE, _METADATA, _NAME = "source-ref", "-metadata", "class-name"
_TASK = {"data", "annotations"}


def with_labels(table: pa.Table, source: str) -> tuple[pa.Table, str | None]:
    """A table with its labels in a column, and what was assumed, as the note of a `TableFile`.

    `source` is what messages call the table.

    Raises:
        DatasetError: Its rows are tasks of Label Studio.
    """
    names = set(table.column_names)
    if names >= _TASK:
        raise DatasetError(
            f"{source!r} has tasks of Label Studio, and none of the first has a box",
            "export the project as CSV, and name that, with the column of its labels as ",
            Setting("label_column", "choice"),
            parameter="location",
        )
    if _ANSWER in names and names & _HASHES:
        return _of_prodigy(table)
    if _IMAGE in names:
        return _of_ground_truth(table)
    return table, None


def _of_prodigy(table: pa.Table) -> tuple[pa.Table, str | None]:
    name = LABEL if LABEL in table.column_names else _CHOSEN
    if name not in table.column_names:
        return table, None
    column = table.column(name)
    accepted = pc.fill_null(pc.equal(table.column(_ANSWER), _ACCEPTED), fill_value=False)
    labels = pc.if_else(accepted, column, pa.scalar(None, column.type))
    table = table.drop_columns([name]).append_column(LABEL, labels)
    left = len(table) - (pc.sum(accepted).as_py() or 0)
    if not left:
        return table, None
    return table, f"is of Prodigy, and {count_of(left, 'row')} rejected or ignored have no label"


def _of_ground_truth(table: pa.Table) -> tuple[pa.Table, str | None]:
    named = [
        field.name.removesuffix(_METADATA)
        for field in table.schema
        if field.name.endswith(_METADATA)
        and pa.types.is_struct(field.type)
        and field.type.get_field_index(_NAME) >= 0
    ]
    for name in named:
        column = pc.struct_field(table.column(f"{name}{_METADATA}"), _NAME)
        called = LABEL if len(named) == 1 else f"{name}_{LABEL}"
        if called not in table.column_names:
            table = table.append_column(called, column)
    if len(named) != 1:
        return table, None
    return table, f"has the names of the classes of {named[0]!r} as labels"
