"""Thousands of requests that mean harm: none is answered with a 5xx, none reads what it may not."""

import http.client
import itertools
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

SECRET = b"the contents of a file outside of every root"
AT_LEAST = 2000
BODY_LIMIT = 1 << 20
ROOM = 300 << 20  # bytes that a process may grow by

TARGETS = (
    "../secret.png",
    "../../secret.png",
    "train/../../secret.png",
    "train/cat/../../../secret.png",
    "./.././secret.png",
    "..",
    "../",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "~/secret.png",
    "~root/.ssh/id_rsa",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "s3://bucket/key",
    "http://127.0.0.1/secret",
    "https://169.254.169.254/latest/meta-data",
    "hf://datasets/x",
    "data:image/png;base64,AAAA",
    "train/way-out/secret.png",
    "way-out",
    "way-out/",
    "secret-link.png",
    "C:\\Windows\\win.ini",
    "..\\secret.png",
    "....//secret.png",
    "..;/secret.png",
    "\uff0e\uff0e/secret.png",
    "\u2025/secret.png",
    "..\u2215secret.png",
    "..\u00c0\u00af secret.png",
    "train\x00/../../secret.png",
    "../secret.png\x00.png",
    "train/\r\nX-Injected: 1",
    "/proc/self/environ",
    "/dev/zero",
    "/proc/self/fd/0",
    "\\\\server\\share",
    "$(cat ../secret.png)",
    "{{7+7}}",
    "' OR 1=1 --",
    "%",
    "%zz",
    "a" * 5000,
    "../" * 600,
)

ENCODINGS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: quote(text, safe=""),
    lambda text: quote(quote(text, safe=""), safe=""),
    lambda text: quote(quote(quote(text, safe=""), safe=""), safe=""),
    lambda text: text.replace(".", "%2e").replace("/", "%2f"),
    lambda text: text.replace(".", "%c0%ae").replace("/", "%c0%af"),
    lambda text: text.replace(".", "%u002e").replace("/", "%u2215"),
    lambda text: text.replace("/", "\\"),
    lambda text: text.replace("/", "%5c"),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()[:300]),
)

FIELDS = (
    "split",
    "image_column",
    "label_column",
    "id_column",
    "limit",
    "backbone",
    "scorers",
    "augment_runs",
    "seed",
    "shrinkage",
    "gaussians",
    "on_error",
    "dataset",
    "unknown",
)

WRONG: tuple[object, ...] = (
    -1,
    0.5,
    2**64,
    10**400,
    True,
    "",
    "\x00",
    "\ud800",
    "a" * 100_000,
    [],
    [[]],
    {},
    {"a": {"b": {}}},
    [None],
    ["rmd", "rmd"],
    "../../x",
)

RAW_BODIES = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"NaN",
    b"Infinity",
    b"\xff\xfe",
    b"\x80",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"dataset": {"root": "photos", "path": "\\ud800"}}',
    b'{"dataset": NaN}',
    b'{"dataset": {"root": "photos"}, "dataset": 1}',
    b"<xml/>",
    b"dataset=1",
    b"\x00" * 1000,
    b'{"seed": ' + b"9" * 10_000 + b"}",
)


@dataclass(frozen=True)
class Bad:
    """A request, sent byte for byte as it is."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tenants:
    """Two keys and a finished job of the second one's."""

    mine: str
    theirs: str
    their_job: str
    their_upload: str


@pytest.fixture
def service(start_service: Callable[..., Any], sqlite_url: str, photos: Path) -> Any:  # noqa: ANN401
    outside = photos.parent / "outside"
    outside.mkdir(exist_ok=True)
    for place in (outside / "secret.png", photos.parent / "secret.png"):
        place.write_bytes(SECRET)
    for link, target in (("way-out", outside), ("secret-link.png", outside / "secret.png")):
        if not (photos / link).is_symlink():
            (photos / link).symlink_to(target)
    return start_service(sqlite_url, max_body_bytes=BODY_LIMIT, max_upload_bytes=10 * BODY_LIMIT)


@pytest.fixture
def tenants(service: Any) -> Tenants:  # noqa: ANN401
    mine, theirs = service.new_key("mine"), service.new_key("theirs")
    with service.client(theirs) as client:
        body = {"dataset": {"root": "photos", "path": "train"}, "backbone": "builtin"}
        job = client.post("/v1/jobs", json=body | {"shrinkage": 0.5}).json()
        client.get(job["links"]["events"])  # until it has ended
        upload = client.post("/v1/uploads", json={"format": "zip", "size": 100}).json()
    return Tenants(mine, theirs, job["id"], upload["id"])


def escapes() -> Iterator[str]:
    seen = set()
    for target, encode in itertools.product(TARGETS, ENCODINGS):
        escape = encode(target)
        if escape not in seen:
            seen.add(escape)
            yield escape


def bad_requests(tenants: Tenants) -> Iterator[Bad]:
    for number, escape in enumerate(escapes()):
        yield job_of({"dataset": {"root": "photos", "path": escape}})
        address = as_path(escape)
        yield Bad("GET", f"/v1/jobs/{tenants.their_job}/thumbnails/{address}")
        # Elsewhere no path is meant; half of them each is enough to see that none is taken.
        elsewhere = [
            job_of({"dataset": {"root": escape, "path": "train"}}),
            job_of({"dataset": {"upload": escape}}),
            job_of({"dataset": {"root": "photos", "path": "train"}, "backbone": escape}),
            Bad("GET", f"/v1/jobs/{address}"),
            Bad("PUT", f"/v1/uploads/{address}", b"abc"),
            Bad("POST", f"/v1/gaussians/{address}/score", b"{}"),
        ]
        yield from elsewhere[number % 2 :: 2]
    for name, value in itertools.product(FIELDS, WRONG):
        yield job_of({"dataset": {"root": "photos", "path": "not there"}, name: value})
    for address, body in itertools.product(
        ("/v1/jobs", "/v1/uploads", f"/v1/gaussians/{tenants.their_job}/score"), RAW_BODIES
    ):
        yield Bad("POST", address, body, {"Content-Type": "application/json"})
        yield Bad("POST", address, body, {"Content-Type": "multipart/form-data; boundary=x"})
    yield from trespasses(tenants)


def trespasses(tenants: Tenants) -> Iterator[Bad]:
    """Another key's things, by their right names."""
    job, upload = f"/v1/jobs/{tenants.their_job}", f"/v1/uploads/{tenants.their_upload}"
    for address in (
        job,
        f"{job}/events",
        f"{job}/scores.parquet",
        f"{job}/scores",
        f"{job}/errors",
        f"{job}/thumbnails/cat/0.png",
        upload,
    ):
        for method in ("GET", "HEAD", "DELETE", "PUT", "POST", "PATCH"):
            yield Bad(method, address, b"x" if method in ("PUT", "POST", "PATCH") else None)
    yield job_of({"dataset": {"upload": tenants.their_upload}})
    existing = {"root": "photos", "path": "train"}
    yield job_of({"dataset": existing, "gaussians": tenants.their_job})
    yield Bad("POST", f"/v1/gaussians/{tenants.their_job}/score", b'{"features": [[0]]}')


def job_of(body: dict[str, object]) -> Bad:
    content = json.dumps(body).encode()
    return Bad("POST", "/v1/jobs", content, {"Content-Type": "application/json"})


def as_path(text: str) -> str:
    """What an HTTP client of theirs would send; control characters end the request line."""
    return quote(text, safe="/%\\;:@$&'()*+,=~{}")


def sent(connection: http.client.HTTPConnection, bad: Bad, key: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {key}"} | bad.headers
    connection.request(bad.method, bad.path, bad.body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_bad_request_gets_further_than_a_problem(service: Any, tenants: Tenants) -> None:  # noqa: ANN401
    before = service.peak_memories()
    parts = urlsplit(service.url)
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port)) as connection:
        answers = [(bad, *sent(connection, bad, tenants.mine)) for bad in bad_requests(tenants)]

    assert len(answers) >= AT_LEAST
    let_through = [
        (bad.method, bad.path[:80], (bad.body or b"")[:200], status)
        for bad, status, _ in answers
        if not 400 <= status < 500
    ]
    assert let_through == []
    assert not any(SECRET in content or b"root:x:0" in content for _, _, content in answers)
    assert still_right(service, tenants)
    assert grown(service, before) < ROOM


@pytest.mark.slow
def test_an_invented_key_is_refused(service: Any, tenants: Tenants) -> None:  # noqa: ANN401
    good = tenants.mine
    keys = [
        good[:-1],
        good + "a",
        good.swapcase(),
        good[::-1],
        " ",
        "null",
        "a" * 190,
        "a" * 10_000,
        "' OR 1=1 --",
        "%00",
        "é",
        *(good[:place] + "x" + good[place + 1 :] for place in range(0, len(good), 2)),
    ]
    headers = [
        *({"Authorization": f"Bearer {key}"} for key in keys if key != good),
        *({"X-API-Key": key} for key in keys if key != good),
        {},
        {"Authorization": good},
        {"Authorization": f"Basic {good}"},
        {"Authorization": "Bearer"},
        {"Cookie": f"key={good}"},
    ]
    parts = urlsplit(service.url)
    statuses = []
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port)) as connection:
        for each in headers:
            connection.request("GET", "/v1/jobs", headers=each)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)

    assert set(statuses) <= {401, 400, 431}
    assert still_right(service, tenants)


LIES = {
    "a length that is never sent": (b"Content-Length: 5000\r\n\r\n", b"{}"),
    "a negative length": (b"Content-Length: -5\r\n\r\n", b"{}"),
    "a length that is no number": (b"Content-Length: many\r\n\r\n", b"{}"),
    "two lengths": (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n", b"{}x"),
    "a length and chunks": (
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"5\r\n{}{}{\r\n0\r\n\r\n",
    ),
    "a length beyond every number": (b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", b"{}"),
    "a length over the limit": (b"Content-Length: 99999999999\r\n\r\n", b"{}"),
    "a chunk of no size": (b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunks over the limit": (
        b"Transfer-Encoding: chunked\r\n\r\n",
        (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 40 + b"0\r\n\r\n",
    ),
    "a small length and a large body": (b"Content-Length: 2\r\n\r\n", b"{}" + b"x" * 4_000_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("target", ["POST /v1/jobs", "PUT upload", "POST /v1/gaussians/x/score"])
def test_bodies_that_lie_about_their_length_are_counted(
    shared_service: Any,  # noqa: ANN401
    lie: str,
    target: str,
) -> None:
    headers, body = LIES[lie]
    with shared_service.client() as client:
        upload = client.post("/v1/uploads", json={"format": "zip", "size": 1000})
        address = upload.headers.get("Location", "/v1/uploads/x")
    before = shared_service.peak_memories()

    line = target.replace("upload", address).encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    status = raw_status(shared_service.url, line + headers + body)

    assert status is None or 200 <= status < 500
    assert grown(shared_service, before) < ROOM
    with shared_service.client() as client:
        assert client.get("/healthz").status_code == 200


def raw_status(url: str, request: bytes) -> int | None:
    """Status of the first answer to some bytes; None where the connection just ends."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port or 80), 20) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1 << 16)
        except OSError:  # the server had enough
            return None
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


def still_right(service: Any, tenants: Tenants) -> bool:  # noqa: ANN401
    """Whether the owner's things are all there, and the other key's list is empty."""
    with service.client(tenants.theirs) as client:
        job = client.get(f"/v1/jobs/{tenants.their_job}")
        upload = client.get(f"/v1/uploads/{tenants.their_upload}").json()
    with service.client(tenants.mine) as client:
        jobs = client.get("/v1/jobs").json()["jobs"]
    return job.json()["state"] == "succeeded" and upload["received"] == 0 and jobs == []


def grown(service: Any, before: list[int]) -> int:  # noqa: ANN401
    """By how many bytes the peak of a process has risen at most."""
    return max(now - then for now, then in zip(service.peak_memories(), before, strict=True))
