"""Marks that a job applies to its dataset."""

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "applied_marks",
        sa.Column("job", sa.String(32), nullable=False),
        sa.Column("marks", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_applied_marks"),
        sa.ForeignKeyConstraint(
            ["job"], ["jobs.id"], name="fk_applied_marks_job", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    """To the revision before."""
    op.drop_table("applied_marks")
