"""Whose turn it is in the queue, and how long jobs have been worked on."""

import sqlalchemy as sa
from alembic import op

from api.migrations.columns import add_missing_columns, add_missing_index
from api.storage.tables import TURNS

revision: str = "0009"
down_revision: str | None = "0008"


def upgrade() -> None:
    """To this revision."""
    seconds = sa.Column("seconds", sa.Float, nullable=False, server_default="0")
    add_missing_columns("jobs", [seconds])
    add_missing_index("jobs", "ix_jobs_state_owner", ["state", "owner"])
    TURNS.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """To the revision before."""
    TURNS.drop(op.get_bind(), checkfirst=True)
    op.drop_index("ix_jobs_state_owner", "jobs")
    op.drop_column("jobs", "seconds")
