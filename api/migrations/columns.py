"""Columns and indexes that a revision adds to a table, unless they are there.

The first revision makes all tables as of today.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op


def add_missing_columns(table: str, columns: Sequence[sa.Column[Any]]) -> None:
    """Adds the columns that a table does not have."""
    present = {each["name"] for each in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in present:
            op.add_column(table, column)


def add_missing_index(table: str, name: str, columns: Sequence[str]) -> None:
    """Adds an index, if a table does not have it."""
    if name not in {each["name"] for each in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, columns)
