"""Comparisons of jobs: who makes them, how far they are, and which jobs they are about."""

from alembic import op

from api.storage.tables import COMPARISONS

revision: str = "0013"
down_revision: str | None = "0012"


def upgrade() -> None:
    """To this revision; comparisons of the one before are asked for again."""
    COMPARISONS.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """To the revision before."""
    COMPARISONS.drop(op.get_bind(), checkfirst=True)
