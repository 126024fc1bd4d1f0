"""The tables of the database, which `api/migrations` creates, and the ids in them.

Times are in seconds since 1970, by the clock of the database. That may be set back: a time to wait
for has its length beside it, and one that is further ahead was written under the later clock. The
definitions hold for every supported database.
"""

import re
import secrets
import time
from typing import get_args

import sqlalchemy as sa

from difficulty_service.bodies.jobs import State

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

STATES: tuple[State, ...] = get_args(State)

DELETING = "deleting"  # state of a job whose files are being deleted; to every client it is gone

# SQLite generates ids only for columns whose type is exactly INTEGER.
EVENT_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

IDENTITY = sa.Table(
    "identity",
    METADATA,
    sa.Column("name", sa.String(16), primary_key=True),  # "database", of which there is one row
    sa.Column("id", sa.String(32), nullable=False),
)

KEYS = sa.Table(
    "api_keys",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("secret_sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("scopes", sa.String(100), nullable=False),  # with commas between
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("revoked_at", sa.Float),
    sa.Column("expires_at", sa.Float),
    sa.Column("roots", sa.Text),  # JSON list of names; None for all
    sa.Column("used_at", sa.Float),  # last, to about a minute
    sa.Column("replaced_sha256", sa.String(64)),  # of the secret before, and until when it is valid
    sa.Column("replaced_until", sa.Float),
    sa.Index("ix_api_keys_replaced_sha256", "replaced_sha256"),
)

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("owner", sa.String(32), nullable=False),  # id of the key, "" without keys
    sa.Column("state", sa.String(16), nullable=False),  # a `State`, or DELETING
    sa.Column("request", sa.Text, nullable=False),  # JSON, as validated
    sa.Column("request_sha256", sa.String(64), nullable=False),
    sa.Column("root", sa.Text),  # of its dataset; None for an upload
    sa.Column("idempotency_key", sa.String(200)),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("run_after", sa.Float, nullable=False),
    sa.Column("started_at", sa.Float),
    sa.Column("finished_at", sa.Float),
    sa.Column("attempt", sa.Integer, nullable=False, default=0),  # 0 before the first claim
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("worker", sa.String(100)),
    sa.Column("lease_until", sa.Float),
    # Length in seconds of what the job waits for: its lease, or the delay of its next attempt.
    sa.Column("hold_seconds", sa.Float, nullable=False, default=0.0),
    sa.Column("cancel_requested", sa.Integer, nullable=False, default=0),
    sa.Column("done", sa.BigInteger, nullable=False, default=0),
    sa.Column("total", sa.BigInteger),
    sa.Column("bad", sa.BigInteger, nullable=False, default=0),
    sa.Column("rate", sa.Float),  # samples per second
    # Of work on it in all attempts, at the last heartbeat.
    sa.Column("seconds", sa.Float, nullable=False, default=0.0),
    sa.Column("error", sa.Text),  # JSON: type, detail, and where known remedy, field
    sa.Column("result", sa.Text),  # JSON: folder of the artifacts, sizes, counts, warnings
    sa.Column("stored_bytes", sa.BigInteger),  # of its artifacts; None until counted
    sa.UniqueConstraint("owner", "idempotency_key"),
    sa.Index("ix_jobs_state_run_after", "state", "run_after", "created_at"),
    sa.Index("ix_jobs_state_owner", "state", "owner"),  # how many of each owner are running
    sa.Index("ix_jobs_owner_created", "owner", "created_at", "id"),
)

TURNS = sa.Table(
    "turns",
    METADATA,
    sa.Column("owner", sa.String(32), primary_key=True),  # as of jobs
    sa.Column("turn", sa.BigInteger, nullable=False),  # at its last claim; they count all claims
)

EVENTS = sa.Table(
    "job_events",
    METADATA,
    sa.Column("id", EVENT_ID, primary_key=True, autoincrement=True),
    sa.Column("job", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),  # state, progress, warning
    sa.Column("data", sa.Text, nullable=False),  # JSON
    sa.Index("ix_job_events_job_id", "job", "id"),
)

UPLOADS = sa.Table(
    "uploads",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("owner", sa.String(32), nullable=False),
    sa.Column("name", sa.String(200)),  # of the file; None where it was not named
    sa.Column("format", sa.String(16), nullable=False),  # tar, zip, parquet
    sa.Column("size", sa.BigInteger),  # as declared; None until known
    sa.Column("received", sa.BigInteger, nullable=False, default=0),
    sa.Column("state", sa.String(16), nullable=False),  # open, complete
    sa.Column("sha256", sa.String(64)),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("used_at", sa.Float, nullable=False),
)

WORKERS = sa.Table(
    "workers",
    METADATA,
    sa.Column("id", sa.String(100), primary_key=True),
    sa.Column("device", sa.String(32), nullable=False),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("seen_at", sa.Float, nullable=False),
    sa.Column("job", sa.String(32)),
    sa.Column("images", sa.BigInteger, nullable=False, default=0),  # since it started
)

MARKS = sa.Table(
    "marks",
    METADATA,
    sa.Column("job", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("owner", sa.String(32), primary_key=True),  # id of the key, "" without keys, or FINAL
    sa.Column("row", sa.BigInteger, primary_key=True, autoincrement=False),  # in the score file
    sa.Column("sample_id", sa.Text, nullable=False),
    sa.Column("mark", sa.String(16), nullable=False),  # as in `Mark`
    sa.Column("label", sa.Text),  # name of the new class, if the mark needs one
    sa.Column("order", sa.String(16), nullable=False),  # as in `SampleMark`
    sa.Column("at", sa.Float, nullable=False),
)

FINAL = "final"
"""In place of a reviewer's key: the decision that counts, whatever the reviewers decided."""

SHARED_JOBS = sa.Table(
    "shared_jobs",
    METADATA,
    sa.Column("job", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.String(32), sa.ForeignKey("api_keys.id"), primary_key=True),
)

JOB_COLUMNS = sa.Table(
    "job_columns",
    METADATA,
    sa.Column("job", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),  # of the table that was sent
    sa.Column("version", sa.String(32), nullable=False),  # id of what was joined of it
    sa.Column("joined", sa.Text, nullable=False),  # JSON: columns and notes
    sa.Column("attached_at", sa.Float, nullable=False),  # first, under this name
)

COMPARISONS = sa.Table(
    "comparisons",
    METADATA,
    sa.Column("job", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.String(32), primary_key=True),  # the same for the same request
    sa.Column("others", sa.Text, nullable=False),  # JSON: id, owner and root of each other job
    sa.Column("request", sa.Text, nullable=False),  # JSON, as validated
    sa.Column("state", sa.String(16), nullable=False),  # running, succeeded, failed
    sa.Column("share", sa.Float, nullable=False, default=0.0),
    sa.Column("failure", sa.Text),
    sa.Column("summary", sa.Text),  # what was found, in a sentence
    sa.Column("maker", sa.String(32), nullable=False),  # whoever makes it writes under this
    sa.Column("asked_at", sa.Float, nullable=False),
    sa.Column("seen_at", sa.Float, nullable=False),  # when its maker was last heard of
)

SAVED_VIEWS = sa.Table(
    "saved_views",
    METADATA,
    sa.Column("job", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("owner", sa.String(32), primary_key=True),  # id of the key, "" without keys
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("query", sa.Text, nullable=False),  # of the address, with the question mark
)

APPLIED_MARKS = sa.Table(
    "applied_marks",
    METADATA,
    sa.Column("job", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("marks", sa.LargeBinary, nullable=False),  # of `encode_marks`
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
