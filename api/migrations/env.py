"""Run by alembic for each upgrade, on the connection that `storage.database` gives it."""

from alembic import context

from api.storage.tables import METADATA


def upgrade() -> None:
    """All steps in the transaction that the connection is in: all of them happen, or none."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=METADATA,
        render_as_batch=True,  # SQLite alters a table by making it anew
    )
    with context.begin_transaction():
        context.run_migrations()


upgrade()
