"""Lists of images that a person has named, in a small file of the explorer."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

import structlog

from api.settings import Settings
from difficulty_service.base.files import replacing

MOST_VIEWS = 100
LONGEST_NAME = 100


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


class SavedViews:
    """The views of one dataset, sorted by name; a view that is saved again is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()

    def all(self) -> Sequence[SavedView]:
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

    def save(self, view: SavedView) -> None:
        """Adds a view, in place of one of the same name.

        Raises:
            TooManyViews: There are MOST_VIEWS already.
        """
        with self._lock:
            others = [each for each in self.all() if each.name != view.name]
            if len(others) >= MOST_VIEWS:
                raise TooManyViews
            self._write([*others, view])

    def delete(self, name: str) -> None:
        """Removes the view of a name, if there is one."""
        with self._lock:
            self._write([each for each in self.all() if each.name != name])

    def _write(self, views: Sequence[SavedView]) -> None:
        ordered = sorted(views, key=lambda view: (view.name.casefold(), view.name))
        with replacing(self._path) as temporary:
            text = json.dumps([asdict(view) for view in ordered], ensure_ascii=False, indent=1)
            temporary.write_text(text + "\n", "utf-8", errors="replace")


def _query(text: str) -> str:
    """A query; anything else, which a link could lead away by, is an error."""
    if text and not text.startswith("?"):
        raise ValueError(f"{text[:100]!r} is no query")
    return text
