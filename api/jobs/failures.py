"""What the owner of a job is told when it fails, and whether it is tried again."""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from api.http.problems import Problem
from api.settings import Settings
from difficulty_service.datasets.storage import is_uri
from difficulty_service.errors import DifficultyError, FeatureStoreError

STORAGE_REASONS = {
    errno.ENOSPC: "the service has no space left to work in",
    errno.EDQUOT: "the service has no space left to work in",
    errno.EFBIG: "a file is larger than the service may write",
}

LASTING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors of reading a dataset that the next attempt would meet again."""

_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/~-])~?/(?:[^\s/'\":;,()]+/)*[^\s/'\":;,()]*")
_OPTION = re.compile(r"(?<!\S)--([a-z][a-z-]*)")
_SLUG = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed.

    Attributes:
        type: Stable name.
        detail: For the owner of the job.
        repeat: Whether another attempt may end otherwise.
    """

    type: str
    detail: str
    repeat: bool

    def body(self) -> dict[str, str]:
        """As it is kept with the job."""
        return {"type": self.type, "detail": self.detail}


def describe_failure(error: Exception, names: Mapping[str, str]) -> Failure:
    """What to tell about an error.

    Args:
        error: What ended the attempt.
        names: What to write instead of paths and URIs of this server.
    """
    if isinstance(error, Problem):
        return Failure(error.type, hide_paths(error.detail, names), repeat=error.status >= 500)  # noqa: PLR2004
    if isinstance(error, FeatureStoreError):
        left = "what an earlier attempt left could not be used, and is made anew"
        return Failure(_slug(error), left, repeat=True)
    if isinstance(error, DifficultyError):
        detail = hide_paths(_OPTION.sub(_as_field, str(error)), names)
        return Failure(_slug(error), detail, repeat=_may_pass(error))
    if isinstance(error, MemoryError):
        return Failure("out-of-memory", "the worker has too little memory for it", repeat=True)
    if isinstance(error, OSError):
        # pyarrow puts the whole message where others have the reason.
        reason = STORAGE_REASONS.get(error.errno or 0, "the service could not read or write a file")
        return Failure("storage", reason, repeat=True)
    # Its message was written for developers and may hold anything.
    inside = "something went wrong inside; the worker's log says what"
    return Failure("internal", inside, repeat=True)


def public_names(settings: Settings) -> dict[str, str]:
    """What to call the places of this server outside, by their paths and URIs."""
    names: dict[str, str] = {}
    for name, root in settings.roots.items():
        # Messages may name a folder as given or as it is found on the disk.
        local = () if is_uri(root) else (str(Path(root).absolute()), str(Path(root).resolve()))
        names |= {place.rstrip("/"): name for place in (root, *local)}
    return {place: name for place, name in names.items() if place}


def hide_paths(text: str, names: Mapping[str, str]) -> str:
    """A text for those outside, without paths of this server.

    Args:
        text: For those inside.
        names: What to write instead of known paths and URIs; of all others only the last part is
            left.
    """
    for place in sorted(names, key=len, reverse=True):
        text = text.replace(place, names[place])
    return _ABSOLUTE_PATH.sub(lambda found: PurePosixPath(found[0]).name or found[0], text)


def _may_pass(error: DifficultyError) -> bool:
    """Whether it is the way to a storage that failed behind it."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, LASTING)


def _slug(error: DifficultyError) -> str:
    return _SLUG.sub("-", type(error).__name__).lower()


def _as_field(option: re.Match[str]) -> str:
    return f'"{option[1].replace("-", "_")}"'
