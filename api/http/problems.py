"""Errors as problem details (RFC 9457): a stable type, what is wrong, which field, what to do."""

import dataclasses
import errno
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Self

CONTENT_TYPE = "application/problem+json"

STORAGE_REASONS = {
    errno.ENOSPC: "the service has no space left to work in",
    errno.EDQUOT: "the service has no space left to work in",
    errno.EFBIG: "a file is larger than the service may write",
}
"""What is wrong with the storage of the server, by the number of the system's error."""


@dataclasses.dataclass(eq=False)
class Problem(Exception):
    """An error answer."""

    status: int
    type: str  # stable name, a key of `TITLES`
    detail: str
    remedy: str
    field: str | None = None  # path in the request that is at fault, such as "dataset.path"
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        """Supports pickling, with which a problem crosses from one process to another."""
        values = (self.status, self.type, self.detail, self.remedy, self.field, dict(self.headers))
        return self.__class__, values

    def body(self) -> dict[str, Any]:
        """The problem as JSON values."""
        values = {
            "type": f"/problems/{self.type}",
            "title": TITLES[self.type],
            "status": self.status,
            "detail": self.detail,
            "remedy": self.remedy,
        }
        return values if self.field is None else values | {"field": self.field}


TITLES = {
    "bad-request": "The request cannot be understood",
    "invalid-request": "A field of the request is wrong",
    "unauthorised": "A valid API key is needed",
    "forbidden": "The key does not allow this",
    "not-found": "There is no such thing, or it belongs to another key",
    "method-not-allowed": "The address does not take this method",
    "conflict": "It does not fit the present state",
    "gone": "It was there and has expired",
    "too-large": "The body is larger than allowed",
    "headers-too-large": "Address and headers are larger than allowed",
    "too-slow": "The request arrived too slowly",
    "unsupported-media-type": "The body is of another kind than expected",
    "range-not-satisfiable": "The file has no such bytes",
    "too-many-requests": "Too many requests",
    "too-many-jobs": "Too many jobs are waiting",
    "too-many-comparisons": "Too many comparisons are waiting",
    "too-many-uploads": "Too many uploads are open",
    "unreadable": "The data sent cannot be read",
    "quota": "The key keeps as much as it may",
    "storage": "The service has no room to store data",
    "unavailable": "The service cannot do this now",
    "damaged": "A file on the server is not as it was written",
    "internal": "Something went wrong inside",
}
"""Title of each type."""


def reason_of(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, of an error of pydantic."""
    return str(error["msg"]).removeprefix("Value error, ")


invalid = partial(Problem, 422, "invalid-request")
bad_request = partial(Problem, 400, "bad-request")
forbidden = partial(Problem, 403, "forbidden")
conflict = partial(Problem, 409, "conflict")
gone = partial(Problem, 410, "gone")
too_large = partial(Problem, 413, "too-large")
unreadable = partial(Problem, 422, "unreadable")
too_many = partial(Problem, 429, "too-many-requests")
unavailable = partial(Problem, 503, "unavailable")


def stopping() -> Problem:
    """For a request that the server has no time to answer, because it is told to stop."""
    return unavailable(
        "the service is being stopped",
        "send the request again once it is back",
        headers={"Retry-After": "5", "Connection": "close"},
    )


def headers_too_large(limit: int) -> Problem:
    """For a head of more than `limit` bytes; closes the connection."""
    return Problem(
        431,
        "headers-too-large",
        f"address and headers have more than {limit:,} bytes",
        "send what is large in the body",
        headers={"Connection": "close"},
    )


_WHERE_LISTED = {
    "job": "GET /v1/jobs lists the jobs of this key",
    "upload": "GET /v1/uploads lists the uploads of this key",
    "table": "GET /v1/jobs/{job_id}/columns lists the tables of a job",
    "comparison": "GET /v1/jobs/{job_id}/comparisons lists those of a job",
    "region": "GET /v1/jobs/{job_id}/missing lists those of a job",
    "sample": "GET /v1/jobs/{job_id}/scores lists the samples with a score, and "
    "GET /v1/jobs/{job_id}/errors those without one",
}


def not_found(
    kind: Literal["job", "upload", "sample", "table", "comparison", "region"], identity: str
) -> Problem:
    """For what does not exist, and for what another key owns: callers cannot tell them apart."""
    return Problem(404, "not-found", f"there is no {kind} {identity!r}", _WHERE_LISTED[kind])
