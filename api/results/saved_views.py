"""Lists of images that a person has named: a small file of an explorer, rows of a service."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

import structlog
from sqlalchemy import ColumnElement, Engine, delete, insert, select

from api.settings import Settings
from api.storage.database import retry, write_transaction
from api.storage.space import makes_room
from api.storage.tables import JOBS, SAVED_VIEWS
from difficulty_service.base.files import replacing

MOST_VIEWS = 100
LONGEST_NAME = 100
LONGEST_QUERY = 10_000  # characters


def views_file(settings: Settings) -> Path:
    """Where the views of an explorer are."""
    return settings.data_dir / "views.json"


class TooManyViews(Exception):
    """There is no room for another view."""


@dataclass(frozen=True)
class SavedView:
    """A list of images: a name, and the query of its address, with the question mark."""

    name: str
    query: str


@dataclass(frozen=True)
class Reviewed:
    """A job and the key, "" without keys, whose views of its samples are meant."""

    job_id: str
    owner: str


class SavedViews(Protocol):
    """Views of the samples of jobs, sorted by name; a view that is saved again is replaced."""

    def all(self, of: Reviewed) -> Sequence[SavedView]:
        """All views."""

    def save(self, of: Reviewed, view: SavedView) -> None:
        """Adds a view, in place of one of the same name.

        Raises:
            TooManyViews: There are MOST_VIEWS already.
        """

    def delete(self, of: Reviewed, name: str) -> None:
        """Removes the view of a name, if there is one."""


def _in_order(views: Iterable[SavedView]) -> list[SavedView]:
    return sorted(views, key=lambda view: (view.name.casefold(), view.name))


class StoredViews:
    """The views of a service: each key has its own of every job, which go with the job."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self, of: Reviewed) -> Sequence[SavedView]:
        """All views that a key has of a job."""
        query = select(SAVED_VIEWS.c.name, SAVED_VIEWS.c.query).where(_is(of))
        with self._engine.connect() as connection:
            return _in_order(SavedView(row.name, row.query) for row in connection.execute(query))

    def save(self, of: Reviewed, view: SavedView) -> None:
        """Adds a view; raises TooManyViews where the key has MOST_VIEWS of the job."""
        _save(self._engine, of, view)

    def delete(self, of: Reviewed, name: str) -> None:
        """Removes the view of a name, if there is one."""
        _delete(self._engine, of, name)


@retry
def _save(engine: Engine, of: Reviewed, view: SavedView) -> None:
    with write_transaction(engine) as connection:
        # One transaction after the other for each job.
        connection.execute(select(JOBS.c.id).where(JOBS.c.id == of.job_id).with_for_update())
        present = set(connection.execute(select(SAVED_VIEWS.c.name).where(_is(of))).scalars())
        if len(present - {view.name}) >= MOST_VIEWS:
            raise TooManyViews
        connection.execute(delete(SAVED_VIEWS).where(_is(of), SAVED_VIEWS.c.name == view.name))
        values = {"job": of.job_id, "owner": of.owner, **asdict(view)}
        connection.execute(insert(SAVED_VIEWS).values(values))


@retry
@makes_room
def _delete(engine: Engine, of: Reviewed, name: str) -> None:
    with write_transaction(engine) as connection:
        connection.execute(delete(SAVED_VIEWS).where(_is(of), SAVED_VIEWS.c.name == name))


def _is(of: Reviewed) -> ColumnElement[bool]:
    return (SAVED_VIEWS.c.job == of.job_id) & (SAVED_VIEWS.c.owner == of.owner)


class ExplorerViews:
    """The views of an explorer, which every round of its dataset has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()

    def all(self, _of: Reviewed | None = None) -> Sequence[SavedView]:
        """All views. A file that cannot be read is put aside, so that it can be repaired."""
        try:
            read = json.loads(self._path.read_text("utf-8"))
            return [SavedView(str(each["name"]), _query(each["query"])) for each in read]
        except FileNotFoundError:
            return []
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            aside = self._path.with_suffix(".damaged.json")
            structlog.get_logger().error("views-damaged", kept=str(aside), reason=str(error))
            with suppress(FileNotFoundError):  # another request has done it
                self._path.replace(aside)
            return []

    def save(self, _of: Reviewed, view: SavedView) -> None:
        """Adds a view; raises TooManyViews where there are MOST_VIEWS."""
        with self._lock:
            others = [each for each in self.all() if each.name != view.name]
            if len(others) >= MOST_VIEWS:
                raise TooManyViews
            self._write([*others, view])

    def delete(self, _of: Reviewed, name: str) -> None:
        """Removes the view of a name, if there is one."""
        with self._lock:
            self._write([each for each in self.all() if each.name != name])

    def _write(self, views: Sequence[SavedView]) -> None:
        with replacing(self._path) as temporary:
            text = json.dumps(
                [asdict(view) for view in _in_order(views)], ensure_ascii=False, indent=1
            )
            temporary.write_text(text + "\n", "utf-8", errors="replace")


def _query(text: str) -> str:
    """A query; anything else, which a link could lead away by, is an error."""
    if text and not text.startswith("?"):
        raise ValueError(f"{text[:100]!r} is no query")
    return text
