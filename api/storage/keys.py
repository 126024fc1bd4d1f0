"""API keys: who may do what; secrets are shown once and kept as hashes."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Row, func, insert, select, update

from api.storage.database import now, repeated, writing
from api.storage.identifiers import is_id, new_id
from api.storage.tables import KEYS
from difficulty_service.errors import DifficultyError

SCOPES = {
    "read": ("read",),
    "write": ("read", "write"),
    "admin": ("read", "write", "admin"),
}
"""What each scope allows."""

PREFIX = "difficulty_"  # by which scanners of leaked secrets know one
SECRET_BYTES = 32
LONGEST_NAME = 200


class BadKey(DifficultyError):
    """A key that cannot be made as asked."""


@dataclass(frozen=True)
class Key:
    """What is known of a key, which is all but its secret; times are seconds since 1970."""

    id: str
    name: str
    scopes: frozenset[str]
    created_at: float
    revoked_at: float | None

    def allows(self, scope: str) -> bool:
        """Whether one of its scopes is or implies this one."""
        return any(scope in SCOPES[own] for own in self.scopes)


def create_key(engine: Engine, name: str, scopes: Iterable[str]) -> tuple[Key, str]:
    """Makes a key.

    Args:
        engine: The database.
        name: For people; need not be unique.
        scopes: One or more of `SCOPES`.

    Returns:
        The key and its secret, which cannot be had again.

    Raises:
        BadKey: The name is empty or too long, or a scope is unknown.
    """
    asked = frozenset(scopes)
    _check(name, asked)
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    with writing(engine) as connection:
        values = {
            "id": new_id(),
            "name": name,
            "secret_sha256": _digest(secret),
            "scopes": ",".join(sorted(asked)),
            "created_at": now(connection),
        }
        row = connection.execute(insert(KEYS).values(values).returning(*KEYS.c)).one()
    return _key(row), secret


def list_keys(engine: Engine) -> list[Key]:
    """All keys, revoked ones as well, oldest first."""
    with engine.connect() as connection:
        rows = connection.execute(select(KEYS).order_by(KEYS.c.created_at, KEYS.c.id)).all()
    return [_key(row) for row in rows]


@repeated
def revoke_key(engine: Engine, key_id: str) -> Key | None:
    """Ends a key for good; None if there is none of this id."""
    if not is_id(key_id):
        return None
    with writing(engine) as connection:
        at = func.coalesce(KEYS.c.revoked_at, now(connection))
        revoked = update(KEYS).where(KEYS.c.id == key_id).values(revoked_at=at)
        row = connection.execute(revoked.returning(*KEYS.c)).one_or_none()
    return None if row is None else _key(row)


def find_key(engine: Engine, secret: str) -> Key | None:
    """The key with this secret, unless it is revoked.

    What is looked up is a hash, so how long that takes says nothing about the secret.
    """
    digest = _digest(secret)
    with engine.connect() as connection:
        row = connection.execute(select(KEYS).where(KEYS.c.secret_sha256 == digest)).one_or_none()
    if row is None or not secrets.compare_digest(row.secret_sha256, digest):
        return None
    return _key(row) if row.revoked_at is None else None


def any_keys(engine: Engine) -> bool:
    """Whether keys are in use: revoking the last one must not open the service to everybody."""
    with engine.connect() as connection:
        return connection.execute(select(KEYS.c.id).limit(1)).one_or_none() is not None


def _check(name: str, scopes: frozenset[str]) -> None:
    if not name.isprintable() or not 1 <= len(name) <= LONGEST_NAME:
        raise BadKey(f"a key's name has 1 to {LONGEST_NAME} printable characters, unlike {name!r}")
    if not scopes or scopes - SCOPES.keys():
        raise BadKey(f"scopes are some of {', '.join(SCOPES)}, not {sorted(scopes)}")


def _digest(secret: str) -> str:
    # A header may hold what is no valid UTF-8; it must miss, not fail.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _key(row: Row[Any]) -> Key:
    scopes = frozenset(row.scopes.split(","))
    return Key(row.id, row.name, scopes, row.created_at, row.revoked_at)
