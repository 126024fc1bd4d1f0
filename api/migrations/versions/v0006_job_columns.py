"""Columns beside the scores of jobs."""

from alembic import op

from api.storage.tables import JOB_COLUMNS

revision: str = "0006"
down_revision: str | None = "0005"


def upgrade() -> None:
    """To this revision."""
    # The first revision makes all tables of today where there are none.
    JOB_COLUMNS.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """To the revision before."""
    JOB_COLUMNS.drop(op.get_bind(), checkfirst=True)
