"""API keys, their scopes and limits; secrets are shown once and stored as hashes.

Times are those of the clock of the database: a key expires later where that is set back.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, insert, or_, select, update

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
    """A key with an invalid name, scope or end, or one that cannot be changed any more."""


class KeyEnded(DifficultyError):
    """The secret of a key that has expired, or one that another has replaced for long enough."""


@dataclass(frozen=True)
class Terms:
    """What limits a key besides its scopes."""

    expires_at: float | None = None  # seconds since 1970, from which it is refused; None for never
    roots: frozenset[str] | None = None  # names of those that it may use; None for all

    def are_over(self, at: float) -> bool:
        """Whether the key has expired by a time."""
        return self.expires_at is not None and at >= self.expires_at


UNLIMITED = Terms()


@dataclass(frozen=True)
class Key:
    """An API key without its secret; times are in seconds since 1970."""

    id: str
    name: str
    scopes: frozenset[str]
    created_at: float
    revoked_at: float | None
    terms: Terms = UNLIMITED
    used_at: float | None = None  # last, to about a minute; None for never
    replaced_until: float | None = None  # until when the secret before the present one is valid

    @property
    def roots(self) -> frozenset[str] | None:
        """Names of the roots that it may use; None for all."""
        return self.terms.roots

    def allows(self, scope: str) -> bool:
        """Whether one of its scopes is or implies this one."""
        return any(scope in SCOPES[own] for own in self.scopes)


def create_key(
    engine: Engine, name: str, scopes: Iterable[str], terms: Terms = UNLIMITED
) -> tuple[Key, str]:
    """Creates a key; gives it and its secret, which cannot be retrieved again.

    Several keys may have one name; the scopes are one or more of `SCOPES`. The first key takes
    over what was made before there were keys, which nobody could see any more.

    Raises:
        BadKey: The name is empty or too long, a scope is unknown, or the end is over.
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
    secret = _new_secret()
    with write_transaction(engine) as connection:
        values = {
            "id": new_id(),
            "name": name,
            "secret_sha256": digest_of(secret),
            "scopes": ",".join(sorted(scopes)),
            "created_at": now(connection),
            **_columns(connection, terms),
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


@retry
def change_key(engine: Engine, key_id: str, change: Callable[[Terms], Terms]) -> Key | None:
    """Changes the terms of a key, which hold from then on; None if there is no key of this id.

    Raises:
        BadKey: The key is revoked, or the new end is over.
    """
    if not is_id(key_id):
        return None
    with write_transaction(engine) as connection:
        present = _locked(connection, key_id)
        if present is None:
            return None
        terms = change(present.terms)
        # An end that has come may stay: the roots can be changed all the same.
        changed = update(KEYS).where(KEYS.c.id == key_id)
        values = _columns(
            connection, terms, may_be_over=terms.expires_at == present.terms.expires_at
        )
        return _key(connection.execute(changed.values(values).returning(*KEYS.c)).one())


def rotate_key(engine: Engine, key_id: str, overlap: float) -> tuple[Key, str] | None:
    """Gives a key another secret; the one before stays valid for so many seconds.

    With 0 it is forgotten at once, and so is always the one before that. None if there is no key
    of this id.

    Raises:
        BadKey: The key is revoked or has expired.
    """
    if not is_id(key_id):
        return None
    secret = _new_secret()
    with write_transaction(engine) as connection:
        present = _locked(connection, key_id)
        if present is None:
            return None
        at = now(connection)
        if present.terms.are_over(at):
            raise BadKey(
                f"the key {key_id} expired at {moment(present.terms.expires_at)}",
                "give it a later end first, with `difficulty keys change ID --expires 90d`",
                parameter="key_id",
            )
        values = {
            "secret_sha256": digest_of(secret),
            "replaced_sha256": KEYS.c.secret_sha256 if overlap else None,
            "replaced_until": at + overlap if overlap else None,
        }
        rotated = update(KEYS).where(KEYS.c.id == key_id).values(values).returning(*KEYS.c)
        return _key(connection.execute(rotated).one()), secret


def _locked(connection: Connection, key_id: str) -> Key | None:
    """A key that is changed in this transaction."""
    row = connection.execute(
        select(KEYS).where(KEYS.c.id == key_id).with_for_update()
    ).one_or_none()
    if row is not None and row.revoked_at is not None:
        raise BadKey(
            f"the key {key_id} was revoked at {moment(row.revoked_at)}, which is permanent",
            "make another with `difficulty keys create`",
            parameter="key_id",
        )
    return None if row is None else _key(row)


def record_uses(engine: Engine, key_ids: Iterable[str]) -> None:
    """Records that keys were used just now."""
    with write_transaction(engine) as connection:
        used = update(KEYS).where(KEYS.c.id.in_(sorted(key_ids)))
        connection.execute(used.values(used_at=now(connection)))


def find_key(engine: Engine, secret: str) -> Key | None:
    """The key with this secret, unless it is revoked, or has replaced it without an overlap.

    Raises:
        KeyEnded: The key has expired, or the time in which a replaced secret is valid is over.
    """
    return find_by_digest(engine, digest_of(secret))


def find_by_digest(engine: Engine, digest: str) -> Key | None:
    """As `find_key`, by the digest of a secret.

    The look-up is by hash, so its duration reveals nothing about the secret.
    """
    known = or_(KEYS.c.secret_sha256 == digest, KEYS.c.replaced_sha256 == digest)
    with engine.connect() as connection:
        row = connection.execute(select(KEYS).where(known)).one_or_none()
        if row is None or row.revoked_at is not None:
            return None
        is_current = secrets.compare_digest(row.secret_sha256, digest)
        if not is_current and not secrets.compare_digest(row.replaced_sha256, digest):
            return None
        key = _key(row)
        if is_current and key.terms.expires_at is None:
            return key
        at = now(connection)
    if key.terms.are_over(at):
        raise KeyEnded(f"the key expired at {moment(key.terms.expires_at)}")
    if not is_current and at >= row.replaced_until:
        raise KeyEnded(
            f"the key has another secret, and this one ended at {moment(row.replaced_until)}"
        )
    return key


def is_in_force(connection: Connection, key_id: str) -> bool:
    """Whether there is a key with an id that is neither revoked nor expired."""
    if not is_id(key_id):
        return False
    row = connection.execute(select(KEYS).where(KEYS.c.id == key_id)).one_or_none()
    if row is None or row.revoked_at is not None:
        return False
    return not _key(row).terms.are_over(now(connection))


def any_keys(engine: Engine) -> bool:
    """Whether any key was ever created: revoking the last one must not open the service."""
    with engine.connect() as connection:
        return connection.execute(select(KEYS.c.id).limit(1)).one_or_none() is not None


def digest_of(secret: str) -> str:
    """What is stored of a secret."""
    # A header may contain invalid UTF-8, which must match no key rather than fail.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def moment(seconds: float | None) -> str:
    """A time in UTC, to the minute; a dash for none."""
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def _columns(
    connection: Connection, terms: Terms, *, may_be_over: bool = False
) -> dict[str, object]:
    """The terms as columns of `KEYS`."""
    if not may_be_over and terms.are_over(now(connection)):
        raise BadKey(f"{moment(terms.expires_at)} is over", "name a later end", parameter="expires")
    roots = None if terms.roots is None else json.dumps(sorted(terms.roots))
    return {"expires_at": terms.expires_at, "roots": roots}


def _key(row: Row[Any]) -> Key:
    roots = None if row.roots is None else frozenset(json.loads(row.roots))
    return Key(
        row.id,
        row.name,
        frozenset(row.scopes.split(",")),
        row.created_at,
        row.revoked_at,
        Terms(row.expires_at, roots),
        row.used_at,
        row.replaced_until,
    )
