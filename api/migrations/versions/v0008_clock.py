"""The length of what a job waits for, by which a clock that was set back is noticed."""

import sqlalchemy as sa
from alembic import op

from api.migrations.columns import add_missing_columns

revision: str = "0008"
down_revision: str | None = "0007"


def upgrade() -> None:
    """To this revision."""
    length = sa.Column("hold_seconds", sa.Float, nullable=False, server_default="0")
    add_missing_columns("jobs", [length])


def downgrade() -> None:
    """To the revision before."""
    op.drop_column("jobs", "hold_seconds")
