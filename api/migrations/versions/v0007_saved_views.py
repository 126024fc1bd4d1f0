"""Lists of the samples of a job that a key has named."""

from alembic import op

from api.storage.tables import SAVED_VIEWS

revision: str = "0007"
down_revision: str | None = "0006"


def upgrade() -> None:
    """To this revision."""
    # The first revision makes all tables of today where there are none.
    SAVED_VIEWS.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """To the revision before."""
    SAVED_VIEWS.drop(op.get_bind(), checkfirst=True)
