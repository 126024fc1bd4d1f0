"""The size of the artifacts of jobs."""

import sqlalchemy as sa
from alembic import op

from api.migrations.columns import add_missing_columns

revision: str = "0010"
down_revision: str | None = "0009"


def upgrade() -> None:
    """To this revision; the server counts the bytes of present jobs once it runs."""
    add_missing_columns("jobs", [sa.Column("stored_bytes", sa.BigInteger)])


def downgrade() -> None:
    """To the revision before."""
    op.drop_column("jobs", "stored_bytes")
