"""Marks that people give to samples."""

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "marks",
        sa.Column("job", sa.String(32), nullable=False),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("row", sa.BigInteger, nullable=False),
        sa.Column("sample_id", sa.Text, nullable=False),
        sa.Column("mark", sa.String(16), nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("job", "owner", "row", name="pk_marks"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_marks_job", ondelete="CASCADE"),
    )


def downgrade() -> None:
    """To the revision before."""
    op.drop_table("marks")
