"""Columns that a revision adds to a table."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op


def add_missing_columns(table: str, columns: Sequence[sa.Column[Any]]) -> None:
    """Adds columns, unless they are there: the first revision makes all tables as of today."""
    present = {each["name"] for each in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in present:
            op.add_column(table, column)
