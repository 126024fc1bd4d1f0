"""End, roots, last use and replaced secret of a key; the root of a job."""

import json

import sqlalchemy as sa
from alembic import op

from api.migrations.columns import add_missing_columns, add_missing_index

revision: str = "0012"
down_revision: str | None = "0011"

JOBS = sa.table("jobs", sa.column("id"), sa.column("request"), sa.column("root"))
PART = 1000  # jobs that are in memory at once
LIMITED = ("created_at", "revoked_at", "expires_at", "roots")
INDEX = "ix_api_keys_replaced_sha256"
OF_KEYS = (
    sa.Column("expires_at", sa.Float),
    sa.Column("roots", sa.Text),
    sa.Column("used_at", sa.Float),
    sa.Column("replaced_sha256", sa.String(64)),
    sa.Column("replaced_until", sa.Float),
)


def upgrade() -> None:
    """To this revision: present keys have neither end nor roots, jobs the root of their request."""
    add_missing_columns("api_keys", OF_KEYS)
    add_missing_index("api_keys", INDEX, ["replaced_sha256"])
    add_missing_columns("jobs", [sa.Column("root", sa.Text)])
    connection, last = op.get_bind(), ""
    while rows := _following(connection, last):
        last = rows[-1].id
        for row in rows:
            root = json.loads(row.request).get("dataset", {}).get("root")
            if root is not None:
                connection.execute(JOBS.update().where(JOBS.c.id == row.id).values(root=root))


def downgrade() -> None:
    """To the revision before; keys with an end or roots, which could then do more, are revoked."""
    keys = sa.table("api_keys", *(sa.column(each) for each in LIMITED))
    is_limited = keys.c.expires_at.is_not(None) | keys.c.roots.is_not(None)
    end = sa.func.coalesce(keys.c.revoked_at, keys.c.created_at)
    op.get_bind().execute(keys.update().where(is_limited).values(revoked_at=end))
    op.drop_column("jobs", "root")
    op.drop_index(INDEX, "api_keys")
    for column in OF_KEYS:
        op.drop_column("api_keys", column.name)


def _following(connection: sa.Connection, last: str) -> list[sa.Row[tuple[str, str]]]:
    query = sa.select(JOBS.c.id, JOBS.c.request).where(JOBS.c.id > last)
    return list(connection.execute(query.order_by(JOBS.c.id).limit(PART)))
