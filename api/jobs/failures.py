"""What the owner of a job is told when it fails, and whether it is tried again."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_origin

from api.http.problems import STORAGE_REASONS, Problem
from api.http.public_text import hide_paths
from api.settings import Settings
from difficulty_service.base.contract import given
from difficulty_service.base.errors import (
    DeviceError,
    DifficultyError,
    FeatureStoreError,
    Setting,
)
from difficulty_service.bodies.jobs import JobCreate, JobError

PERMANENT_ERRORS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors of reading a dataset that the next attempt would meet again."""

MAX_LENGTH = 2000  # characters of a stored message
_SERVER_ERROR = 500
_SLUG = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed."""

    type: str
    detail: str  # for the owner of the job
    retry: bool  # whether another attempt may succeed
    remedy: str | None = None
    field: str | None = None  # of the job request that is at fault
    of_device: bool = False  # whether the worker's device failed, which other jobs would meet too

    @property
    def error(self) -> JobError:
        """The failure as it is stored with the job."""
        remedy = self.remedy and _shortened(self.remedy)
        known = given(remedy=remedy, field=self.field)
        return JobError(type=self.type, detail=_shortened(self.detail), **known)


def _shortened(text: str) -> str:
    """A text of bounded length that any database can store: messages quote the dataset."""
    text = text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 4] + " ..."


def describe_failure(error: Exception, names: Mapping[str, str]) -> Failure:
    """The failure to report for an error."""
    if isinstance(error, Problem):
        return Failure(
            error.type,
            hide_paths(error.detail, names),
            retry=error.status >= _SERVER_ERROR,
            remedy=error.remedy,
            field=error.field,
        )
    if isinstance(error, FeatureStoreError):
        unusable = "the features of an earlier attempt could not be used and are extracted again"
        return Failure(_slug(error), unusable, retry=True)
    if isinstance(error, DifficultyError):
        of_device = isinstance(error, DeviceError)
        cause = error.__cause__  # the storage may have failed in a way that passes
        return Failure(
            _slug(error),
            hide_paths(error.problem, names),
            retry=of_device
            or (isinstance(cause, OSError) and not isinstance(cause, PERMANENT_ERRORS)),
            remedy=remedy_for_clients(error, names),
            field=error.parameter if error.parameter in JobCreate.model_fields else None,
            of_device=of_device,
        )
    if isinstance(error, MemoryError):
        return Failure("out-of-memory", "the worker has too little memory for the job", retry=True)
    if isinstance(error, OSError):
        # pyarrow puts the whole message where others have the reason.
        reason = STORAGE_REASONS.get(error.errno or 0, "the service could not read or write a file")
        return Failure("storage", reason, retry=True)
    # The message was written for developers and may contain anything.
    internal = "an unexpected error occurred; the worker's log has the details"
    return Failure("internal", internal, retry=True)


def remedy_for_clients(error: DifficultyError, names: Mapping[str, str]) -> str | None:
    """The remedy in terms of a job request; None where it names what no client can set."""
    parameters = {part.parameter for part in error.remedy if isinstance(part, Setting)}
    operators = parameters - JobCreate.model_fields.keys()
    if operators - Settings.model_fields.keys():
        return None
    text = hide_paths(error.remedy_text(as_field_or_variable), names)
    if operators:
        text += " (a setting of the operator)"
    return text or None


def as_field_or_variable(setting: Setting) -> str:
    """`"split": "test"` where a job request has the field, else the operator's variable."""
    if (field := JobCreate.model_fields.get(setting.parameter)) is not None:
        given = [setting.value] if get_origin(field.annotation) is Sequence else setting.value
        value = "" if setting.value is None else f": {json.dumps(given, default=str)}"
        return f'"{setting.parameter}"{value}'
    value = "" if setting.value is None else f"={setting.value}"
    return f"DIFFICULTY_{setting.parameter.upper()}{value}"


def _slug(error: DifficultyError) -> str:
    return _SLUG.sub("-", type(error).__name__).lower()
