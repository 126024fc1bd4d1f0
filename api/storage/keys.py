"""API keys and their scopes; secrets are shown once and stored as hashes."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Row, func, insert, select, update

from api.storage.database import now, retry, write_transaction
from api.storage.space import makes_room
from api.storage.tables import JOBS, KEYS, MARKS, SAVED_VIEWS, UPLOADS, is_id, new_id
from difficulty_service.base.errors import DifficultyError

SCOPES = {
    "read": ("read",),
    "write": ("read", "write"),
    "read-all": ("read", "read-all"),
    "admin": ("read", "write", "read-all", "admin"),
}
"""Scopes that each scope implies."""

OWNED = (JOBS, UPLOADS, MARKS, SAVED_VIEWS)
"""Tables of what belongs to keys, or to "" where there were none."""

PREFIX = "difficulty_"  # by which scanners recognise leaked secrets
SECRET_BYTES = 32
MAX_NAME_LENGTH = 200


class BadKey(DifficultyError):
    """A key with an invalid name or scope."""


@dataclass(frozen=True)
class Key:
    """An API key without its secret; times are in seconds since 1970."""

    id: str
    name: str
    scopes: frozenset[str]
    created_at: float
    revoked_at: float | None

    def allows(self, scope: str) -> bool:
        """Whether one of its scopes is or implies this one."""
        return any(scope in SCOPES[own] for own in self.scopes)


def create_key(engine: Engine, name: str, scopes: Iterable[str]) -> tuple[Key, str]:
    """Creates a key; gives it and its secret, which cannot be retrieved again.

    Several keys may have one name; the scopes are one or more of `SCOPES`. The first key takes
    over what was made before there were keys, which nobody could see any more.

    Raises:
        BadKey: The name is empty or too long, or a scope is unknown.
    """
    scopes = frozenset(scopes)
    if not name.isprintable() or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise BadKey(
            f"{name!r} is not a name of 1 to {MAX_NAME_LENGTH} printable characters",
            parameter="name",
        )
    if not scopes or scopes - SCOPES.keys():
        raise BadKey(
            f"{', '.join(sorted(scopes)) or 'an empty list'} is not a list of scopes",
            f"choose from {', '.join(SCOPES)}",
            parameter="scopes",
        )
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    with write_transaction(engine) as connection:
        values = {
            "id": new_id(),
            "name": name,
            "secret_sha256": _digest(secret),
            "scopes": ",".join(sorted(scopes)),
            "created_at": now(connection),
        }
        is_first = connection.execute(select(KEYS.c.id).limit(1)).one_or_none() is None
        row = connection.execute(insert(KEYS).values(values).returning(*KEYS.c)).one()
        for table in OWNED if is_first else ():
            connection.execute(update(table).where(table.c.owner == "").values(owner=row.id))
    return _key(row), secret


def count_owned(engine: Engine, key_id: str) -> dict[str, int]:
    """Number of the jobs, uploads, marks and saved views of a key, by these words."""
    with engine.connect() as connection:
        numbers = [
            connection.execute(select(func.count()).where(table.c.owner == key_id)).scalar_one()
            for table in OWNED
        ]
    return {
        table.name.replace("_", " "): number for table, number in zip(OWNED, numbers, strict=True)
    }


def list_keys(engine: Engine) -> list[Key]:
    """All keys, revoked ones as well, oldest first."""
    with engine.connect() as connection:
        rows = connection.execute(select(KEYS).order_by(KEYS.c.created_at, KEYS.c.id)).all()
    return [_key(row) for row in rows]


@retry
@makes_room
def revoke_key(engine: Engine, key_id: str) -> Key | None:
    """Revokes a key permanently; None if there is no key of this id."""
    if not is_id(key_id):
        return None
    with write_transaction(engine) as connection:
        at = func.coalesce(KEYS.c.revoked_at, now(connection))
        revoked = update(KEYS).where(KEYS.c.id == key_id).values(revoked_at=at)
        row = connection.execute(revoked.returning(*KEYS.c)).one_or_none()
    return None if row is None else _key(row)


def find_key(engine: Engine, secret: str) -> Key | None:
    """The key with this secret, unless it is revoked.

    The look-up is by hash, so its duration reveals nothing about the secret.
    """
    digest = _digest(secret)
    with engine.connect() as connection:
        row = connection.execute(select(KEYS).where(KEYS.c.secret_sha256 == digest)).one_or_none()
    if row is None or not secrets.compare_digest(row.secret_sha256, digest):
        return None
    return _key(row) if row.revoked_at is None else None


def is_in_force(engine: Engine, key_id: str) -> bool:
    """Whether a key still allows what it did; "", for no key, until there is one."""
    if not key_id:
        return not any_keys(engine)
    valid = select(KEYS.c.id).where(KEYS.c.id == key_id, KEYS.c.revoked_at.is_(None))
    with engine.connect() as connection:
        return connection.execute(valid).one_or_none() is not None


def any_keys(engine: Engine) -> bool:
    """Whether any key was ever created: revoking the last one must not open the service."""
    with engine.connect() as connection:
        return connection.execute(select(KEYS.c.id).limit(1)).one_or_none() is not None


def _digest(secret: str) -> str:
    # A header may contain invalid UTF-8, which must match no key rather than fail.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _key(row: Row[Any]) -> Key:
    scopes = frozenset(row.scopes.split(","))
    return Key(row.id, row.name, scopes, row.created_at, row.revoked_at)
