"""Valid requests of every kind, and a change of one of them."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
from mutations import changed_bytes, changed_json, changed_text
from PIL import Image
from wire import Request

PICTURE_KINDS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
BOUNDARY = "fuzz"
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PAGE = {"Accept": "text/html"}
HEADERS = {
    "Range": "bytes=0-99",
    "If-Range": '"x"',
    "If-None-Match": '"x"',
    "Last-Event-ID": "1",
    "Content-Range": "bytes 0-9/10",
    "Idempotency-Key": "key",
    "Accept": "text/html,*/*;q=0.8",
    "Accept-Encoding": "gzip",
    "Content-Type": "application/json; charset=utf-8",
    "Content-Encoding": "gzip",
    "Cookie": "difficulty_key=x",
    "HX-Request": "true",
    "Origin": "http://localhost",
    "Sec-Fetch-Site": "same-origin",
    "X-Request-ID": "0123456789abcdef0123456789abcdef",
    "X-Forwarded-For": "203.0.113.1",
    "Expect": "200-ok",
}


@dataclass(frozen=True)
class Scored:
    """What requests may name."""

    job: str  # id of a finished job
    upload: str  # id of an upload that has not begun
    sample_id: str  # id of a sample of the job
    classes: list[str]  # its classes
    dim: int  # number of features of its samples


@dataclass(frozen=True)
class Target:
    """A valid request and its body before it is encoded."""

    request: Request  # the request without its body
    body: Any = b""  # JSON, the fields of a form (a dict with the content type of forms), or bytes
    weight: int = 1  # how often it is chosen, beside 1


def targets_of(scored: Scored) -> list[Target]:
    """Every valid request that leaves the job as it is, but for its marks."""
    return [
        *(Target(Request("GET", path, query)) for path, query in _reads(scored)),
        *(Target(Request("GET", *page, PAGE)) for page in _pages(scored)),
        *_changes(scored),
        *_scorings(scored),
    ]


def _reads(scored: Scored) -> Iterator[tuple[str, dict[str, str]]]:
    job = f"/v1/jobs/{scored.job}"
    yield "/v1/jobs", {"limit": "3", "before": "QdnZ", "state": "queued", "owner": ""}
    yield "/v1/uploads", {"limit": "3", "before": scored.upload}
    yield f"/v1/uploads/{scored.upload}", {}
    yield job, {}
    yield f"{job}/events", {"after": "0"}
    yield f"{job}/scores.parquet", {}
    yield f"{job}/scores", {"sort": "rmd", "order": "desc", "limit": "5", "label": "cat"}
    yield f"{job}/scores", {"near": "dog", "pmin": "1", "mark": "any", "like": "3", "text": "a"}
    yield f"{job}/errors", {"limit": "5", "after": "0"}
    yield f"{job}/thumbnails/{scored.sample_id}", {"size": "32"}
    yield f"{job}/marks", {"limit": "5", "after": "1"}
    yield f"{job}/marks.csv", {"of": "all"}
    yield f"{job}/reviewers", {}
    yield f"{job}/columns", {}
    yield f"{job}/marks.parquet", {}
    yield "/v1/backbones", {}
    yield "/v1/folders", {"root": "photos", "path": "train", "start": "0"}
    yield "/static/explorer.css", {}
    yield "/sign-in", {"next": "/jobs"}


def _pages(scored: Scored) -> Iterator[tuple[str, dict[str, str]]]:
    job = f"/jobs/{scored.job}"
    # fmt: off
    conditions = {
        "label": "cat", "near": "dog", "pmin": "1", "pmax": "99", "margin": "-5", "q": "a",
        "mark": "any", "area": "0,0,1,0,1,1", "like": "3", "text": "snow", "is.camera": "A",
        "sort": "hardest",
        "after": "x", "share": "1of3",
    }
    # fmt: on
    yield "/", {"before": "QdnZ"}
    yield "/folders", {"root": "photos", "path": "train", "start": "0"}
    yield job, {}
    yield f"{job}/images", conditions
    yield f"{job}/images", {name: conditions[name] for name in ("label", "sort", "mark")}
    yield f"{job}/images/3", conditions
    yield f"{job}/images/3/picture", {"size": "40"}
    yield f"{job}/pairs", {}
    yield f"{job}/pairs/0/1", {}
    yield f"{job}/classes", {}
    yield f"{job}/map/points", {}
    yield f"{job}/map/tsne", {}
    yield f"{job}/map/ids/3", {}
    yield f"{job}/errors", {"after": "0"}
    yield f"{job}/columns", {}
    yield f"{job}/tray", {}


def _changes(scored: Scored) -> Iterator[Target]:
    job, marks = f"/jobs/{scored.job}", f"/v1/jobs/{scored.job}/marks"
    # fmt: off
    new_job = {
        "dataset": {"root": "photos", "path": "nowhere"}, "split": None, "limit": 10,
        "backbone": "builtin", "scorers": ["rmd", "knn"], "augment_runs": 0, "seed": 7,
        "shrinkage": "auto", "gaussians": scored.job, "on_error": "skip",
    }
    # fmt: on
    yield Target(Request("POST", "/v1/jobs", headers=JSON), new_job, weight=6)
    yield Target(Request("POST", "/v1/estimates", headers=JSON), new_job)
    relabel = {"mark": "relabel", "label": scored.classes[1]}
    changes = [
        {"sample_id": scored.sample_id, "decision": relabel, "seen": None},
        {"row": 2, "decision": {"mark": "keep"}},
        {"row": 3, "decision": None},
    ]
    yield Target(Request("POST", marks, headers=JSON), {"marks": changes}, weight=6)
    announced = {"format": "zip", "size": 10}
    yield Target(Request("POST", "/v1/uploads", headers=JSON), announced, weight=2)
    put = Request("PUT", f"/v1/uploads/{scored.upload}", {"offset": "1", "complete": "true"})
    yield Target(put, b"0123456789")
    # Of no sample, so that it is refused: a table would leave a file.
    yield Target(Request("PUT", f"/v1{job}/columns/a.csv", {"column": "x"}), b"path,x\nnone,1\n")
    form = {"source": "root", "root": "photos", "path": "nowhere", "limit": "3", "token": "t"}
    yield Target(Request("POST", "/", headers=FORM | PAGE), form, weight=3)
    yield Target(Request("POST", "/estimate", headers=FORM | PAGE), form)
    yield Target(Request("POST", "/sign-in", headers=FORM | PAGE), {"key": "x", "next": "/"})
    for address in (f"{job}/images/1", f"{job}/images/mark-matching"):
        marked = Request("POST", address, {"label": "cat", "q": "1"}, FORM | PAGE)
        yield Target(marked, {"mark": "relabel", "label": scored.classes[0]}, weight=2)
    yield Target(Request("POST", f"{job}/score-again", headers=FORM), {"token": "t"})
    yield Target(Request("POST", f"{job}/try-again", headers=FORM), {"token": "t"})
    copies = Request("POST", f"{job}/copies", {"after": "1"}, FORM | PAGE)
    for decision in ("label", "one"):
        yield Target(copies, {"row": "0", decision: scored.classes[0]})
    faults = Request("POST", f"{job}/faults", headers=FORM | PAGE)
    yield Target(faults, {"fault": "dark", "row": "0", "mark": "keep"})
    yield Target(Request("POST", "/jobs/none/remove", headers=FORM), {})


def _scorings(scored: Scored) -> Iterator[Target]:
    address = f"/v1/gaussians/{scored.job}/score"
    features = np.linspace(-1, 1, 2 * scored.dim, dtype=np.float32).reshape(2, -1)
    body = {"features": features[:, :].round(2).tolist(), "labels": [scored.classes[0], 1]}
    yield Target(Request("POST", address, headers=JSON), body, weight=4)
    yield Target(Request("POST", address, headers=ARROW), arrow_of(features), weight=6)
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    for name in PICTURE_KINDS:
        yield Target(Request("POST", address, headers=kind), multipart_of(picture(name)), weight=2)


def arrow_of(features: np.ndarray[Any, Any]) -> bytes:
    """Feature vectors with labels as an Arrow stream."""
    values = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1])
    batch = pa.record_batch({"features": values, "labels": pa.array([0, 1])})
    with pa.BufferOutputStream() as target:
        with pa.ipc.new_stream(target, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(target.getvalue())


def multipart_of(image: bytes) -> bytes:
    """A form with one image and its label."""
    disposition = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name="
    return (
        f'{disposition}"images"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'.encode()
        + image
        + f'\r\n{disposition}"labels"\r\n\r\n1\r\n--{BOUNDARY}--\r\n'.encode()
    )


@cache
def picture(kind: str, shade: int = 0) -> bytes:
    """A small image file."""
    target = io.BytesIO()
    pixels = np.random.default_rng(shade).integers(0, 156, (20, 24, 3)) + shade % 100
    Image.fromarray(pixels.astype(np.uint8)).save(target, kind)
    return target.getvalue()


def changed(random: Random, target: Target) -> Request:
    """The request of a target with one to three changes."""
    request = replace(target.request, body=_encoded(target.body, target.request))
    body_change = [_change_body] * 4 if target.body else []
    options: list[Callable[[Random, Request, Target], Request]] = [
        *body_change,
        *([_change_query] * 3 if request.query else []),
        _change_path,
        _change_header,
        _add_header,
    ]
    for _ in range(random.randint(1, 3)):
        request = random.choice(options)(random, request, target)
    return request


def _encoded(body: Any, request: Request) -> bytes:  # noqa: ANN401
    if isinstance(body, bytes):
        return body
    if "urlencoded" in request.headers["Content-Type"]:
        return urlencode(body).encode()
    return json.dumps(body).encode()


def _change_body(random: Random, request: Request, target: Target) -> Request:
    if isinstance(target.body, bytes) or random.random() < 0.1:
        return replace(request, body=changed_bytes(random, request.body))
    if "urlencoded" not in target.request.headers["Content-Type"]:
        return replace(request, body=changed_json(random, target.body))
    fields = dict(target.body) or {"a": ""}
    name = random.choice(list(fields))
    fields[name] = changed_text(random, fields[name])
    return replace(request, body=urlencode(fields).encode(errors="replace"))


def _change_query(random: Random, request: Request, _target: Target) -> Request:
    query = dict(request.query) or {"a": ""}
    name = random.choice(list(query))
    choice = random.randrange(4)
    if choice == 0:
        query.pop(name)
    elif choice == 1:
        query[changed_text(random, name)] = query[name]
    else:
        query[name] = changed_text(random, query[name])
    return replace(request, query=query)


def _change_path(random: Random, request: Request, _target: Target) -> Request:
    parts = request.path.split("/")
    place = random.randrange(1, len(parts))
    parts[place] = changed_text(random, parts[place])
    return replace(request, path="/".join(parts))


def _change_header(random: Random, request: Request, target: Target) -> Request:
    if not request.headers:
        return _add_header(random, request, target)
    name = random.choice(list(request.headers))
    value = changed_text(random, request.headers[name])
    return replace(request, headers=request.headers | {name: value})


def _add_header(random: Random, request: Request, _target: Target) -> Request:
    name, value = random.choice(list(HEADERS.items()))
    value = changed_text(random, value) if random.random() < 0.7 else value
    return replace(request, headers=request.headers | {name: value})
