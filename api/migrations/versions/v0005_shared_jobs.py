"""Jobs that their owners share with other keys."""

from alembic import op

from api.storage.tables import SHARED_JOBS

revision: str = "0005"
down_revision: str | None = "0004"


def upgrade() -> None:
    """To this revision."""
    # The revision before makes all tables of today where there are none.
    SHARED_JOBS.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """To the revision before."""
    SHARED_JOBS.drop(op.get_bind(), checkfirst=True)
