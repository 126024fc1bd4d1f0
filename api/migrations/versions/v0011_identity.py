"""An id of the database, by which a folder of artifacts knows whose it is."""

from alembic import op

from api.storage.tables import IDENTITY

revision: str = "0011"
down_revision: str | None = "0010"


def upgrade() -> None:
    """To this revision; the id is made when it is first asked for."""
    # The first revision makes all tables of today where there are none.
    IDENTITY.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """To the revision before."""
    IDENTITY.drop(op.get_bind(), checkfirst=True)
