"""The tables of the first release.

They are made as `api.storage.tables` says. Whoever changes them there for the first time after that
release writes them out here as they were, and the change as the next revision.
"""

from alembic import op

from api.storage.tables import METADATA

revision: str = "v0001"
down_revision: str | None = None


def upgrade() -> None:
    """To this revision; nothing leads back but a backup."""
    METADATA.create_all(op.get_bind())
