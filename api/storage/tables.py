"""The tables of the database, which `api/migrations` creates.

Times are in seconds since 1970, by the clock of the database. The definitions hold for every
supported database.

Ids of jobs, uploads and keys.
"""

import re
import secrets
import time
from typing import Literal, get_args

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
STATES: tuple[State, ...] = get_args(State)
FINAL_STATES = ("succeeded", "failed", "cancelled")

DELETING = "deleting"  # state of a job whose files are being deleted; to every client it is gone

# SQLite generates ids only for columns whose type is exactly INTEGER.
EVENT_ID = BigInteger().with_variant(Integer, "sqlite")

KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("secret_sha256", String(64), nullable=False, unique=True),
    Column("scopes", String(100), nullable=False),  # with commas between
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)

JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("owner", String(32), nullable=False),  # id of the key, "" without keys
    Column("state", String(16), nullable=False),  # a `State`, or DELETING
    Column("request", Text, nullable=False),  # JSON, as validated
    Column("request_sha256", String(64), nullable=False),
    Column("idempotency_key", String(200)),
    Column("created_at", Float, nullable=False),
    Column("run_after", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("attempt", Integer, nullable=False, default=0),  # 0 before the first claim
    Column("max_attempts", Integer, nullable=False),
    Column("worker", String(100)),
    Column("lease_until", Float),
    Column("cancel_requested", Integer, nullable=False, default=0),
    Column("done", BigInteger, nullable=False, default=0),
    Column("total", BigInteger),
    Column("bad", BigInteger, nullable=False, default=0),
    Column("rate", Float),  # samples per second
    Column("error", Text),  # JSON: type, detail, and where known remedy, field
    Column("result", Text),  # JSON: folder of the artifacts, sizes, counts, warnings
    UniqueConstraint("owner", "idempotency_key"),
    Index("ix_jobs_state_run_after", "state", "run_after", "created_at"),
    Index("ix_jobs_owner_created", "owner", "created_at", "id"),
)

EVENTS = Table(
    "job_events",
    METADATA,
    Column("id", EVENT_ID, primary_key=True, autoincrement=True),
    Column("job", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", String(32), nullable=False),  # state, progress, warning
    Column("data", Text, nullable=False),  # JSON
    Index("ix_job_events_job_id", "job", "id"),
)

UPLOADS = Table(
    "uploads",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("owner", String(32), nullable=False),
    Column("format", String(16), nullable=False),  # tar, zip, parquet
    Column("size", BigInteger),  # as declared; None until known
    Column("received", BigInteger, nullable=False, default=0),
    Column("state", String(16), nullable=False),  # open, complete
    Column("sha256", String(64)),
    Column("created_at", Float, nullable=False),
    Column("used_at", Float, nullable=False),
)

WORKERS = Table(
    "workers",
    METADATA,
    Column("id", String(100), primary_key=True),
    Column("device", String(32), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("job", String(32)),
    Column("images", BigInteger, nullable=False, default=0),  # since it started
)

MARKS = Table(
    "marks",
    METADATA,
    Column("job", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("owner", String(32), primary_key=True),  # id of the key, "" without keys
    Column("row", BigInteger, primary_key=True, autoincrement=False),  # in the score file
    Column("sample_id", Text, nullable=False),
    Column("mark", String(16), nullable=False),  # keep, relabel, drop
    Column("label", Text),  # name of the new class, for relabel
    Column("at", Float, nullable=False),
)

APPLIED_MARKS = Table(
    "applied_marks",
    METADATA,
    Column("job", String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("marks", Text, nullable=False),  # JSON: mark and label by sample id
)


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # 32 letters in ASCII order, none easily mistaken
TIME_LETTERS = 10
RANDOM_LETTERS = 16
WELL_FORMED = re.compile(f"[{ALPHABET}]{{{TIME_LETTERS + RANDOM_LETTERS}}}")


def new_id() -> str:
    """An id of 26 letters: the time in milliseconds, by which ids sort, then 80 random bits."""
    return _letters(time.time_ns() // 1_000_000, TIME_LETTERS) + _letters(
        secrets.randbits(5 * RANDOM_LETTERS), RANDOM_LETTERS
    )


def id_of(digest: bytes) -> str:
    """The id that stands for a digest, always the same."""
    return _letters(int.from_bytes(digest), TIME_LETTERS + RANDOM_LETTERS)


def is_id(text: str) -> bool:
    """Whether a text has the form of an id; no other text is looked up in the database.

    PostgreSQL fails on a text with a NUL or half a surrogate pair, rather than not finding it.
    """
    return WELL_FORMED.fullmatch(text) is not None


def _letters(number: int, length: int) -> str:
    return "".join(ALPHABET[number >> 5 * digit & 31] for digit in reversed(range(length)))
