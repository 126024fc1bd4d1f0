"""Thousands of malicious requests: none is answered with a 5xx, none reads other keys' data."""

import http.client
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

import pytest

from tests.api.live.running import Service, Tenants

AT_LEAST = 2000
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
    """A request that is sent byte for byte."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


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
    """Requests for what belongs to another key, by its correct ids."""
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
    """The path as an attacker's client sends it; control characters end the request line."""
    return quote(text, safe="/%\\;:@$&'()*+,=~{}")


def sent(connection: http.client.HTTPConnection, bad: Bad, key: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {key}"} | bad.headers
    connection.request(bad.method, bad.path, bad.body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_bad_request_gets_further_than_a_problem(
    service: Service, tenants: Tenants, secret: bytes
) -> None:
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
    assert not any(secret in content or b"root:x:0" in content for _, _, content in answers)
    assert tenants.are_intact(service)
    assert service.growth_since(before) < ROOM
