"""Every request of the client is one that the description of the service knows."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest

from api.app import create_app
from api.settings import Settings
from difficulty_service.bodies.jobs import JobCreate, JobDataset, State
from difficulty_service.bodies.marks import Decision, MarkChange
from difficulty_service.client import Client, ServiceError
from difficulty_service.client.score_filter import ScoreFilter
from difficulty_service.marks.mark_kinds import Mark

ARGUMENTS: Mapping[str, object] = {
    "job": JobCreate(dataset=JobDataset(root="photos")),
    "job_id": "a job",
    "of_job": "a job",
    "kind": "select",
    "comparison_id": "a comparison",
    "sample_id": "cat/ü 1.jpg",
    "changes": [MarkChange(sample_id="a", decision=Decision(mark=Mark.KEEP))],
    "images": [b"an image"],
    "texts": ["a text"],
    "features": [[1.0, 2.0]],
    "labels": ["cat"],
    "start": 5,
    "upload_id": "an upload",
    "number": 2,
    "columns": {"is.camera": "A"},
    "table": "dataset",
    **dict.fromkeys(("root", "path", "owner", "sort", "before"), "text"),
    "after": 7,
    "limit": 10,
    "size": 64,
    "state": "failed",
    "idempotency_key": "k",
    "on_progress": None,
}
METHODS = [name for name in vars(Client) if not name.startswith("_") and name != "close"]


class Recorder(httpx2.BaseTransport):
    """Refuses every request, and remembers the last one."""

    request: httpx2.Request

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.request = request
        return httpx2.Response(418)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Addresses of the description of the service."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    described: dict[str, Any] = create_app(settings).openapi()["paths"]
    return described


def sent(name: str, **arguments: object) -> httpx2.Request:
    """The first request of a method."""
    recorder = Recorder()
    with (
        Client("http://localhost", transport=recorder) as client,
        pytest.raises(ServiceError, match="418"),
    ):
        begin(getattr(client, name), arguments)
    return recorder.request


def begin(method: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Calls a method, until it gives its first value where it gives several."""
    result = method(**arguments)
    if isinstance(result, Iterator):
        next(result)


def every_argument(name: str) -> dict[str, object]:
    """A value for every parameter of a method."""
    arguments: dict[str, object] = {}
    for parameter in inspect.signature(getattr(Client, name)).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            names = ["count"] if name == "compare" else ScoreFilter.__annotations__
            arguments |= dict.fromkeys(names, "1")
        elif parameter.name != "self":
            arguments[parameter.name] = ARGUMENTS[parameter.name]
    return arguments


@pytest.mark.parametrize("name", METHODS)
def test_a_request_is_in_the_description_with_all_its_parameters(
    paths: dict[str, Any], name: str, tmp_path: Path
) -> None:
    arguments = every_argument(name)
    if name == "upload":
        arguments["path"] = tmp_path / "a.zip"
        (tmp_path / "a.zip").write_bytes(b"zip")

    request = sent(name, **arguments)

    address = request.url.raw_path.decode().partition("?")[0]
    matching = [
        path
        for path in paths
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), address)
    ]
    (described,) = (paths[each][request.method.lower()] for each in matching)
    known = {each["name"] for each in described.get("parameters", ())}
    assert {each for each in request.url.params if not each.startswith("is.")} <= known
    kinds = described.get("requestBody", {}).get("content", {})
    kind = request.headers.get("Content-Type", "").partition(";")[0]
    assert kind in {"", *kinds}


def test_all_conditions_of_a_list_of_scores_can_be_given(paths: dict[str, Any]) -> None:
    parameters = paths["/v1/jobs/{job_id}/scores"]["get"]["parameters"]
    in_query = {each["name"] for each in parameters if each["in"] == "query"}

    assert set(ScoreFilter.__annotations__) == in_query - {"sort", "limit", "after"}


def test_what_is_inserted_into_an_address_cannot_lead_elsewhere() -> None:
    request = sent("thumbnail", job_id="../jobs", sample_id="a/../?b#c%2f{}.png")

    assert request.url.raw_path == (
        b"/v1/jobs/..%2Fjobs/thumbnails/a%2F..%2F%3Fb%23c%252f%7B%7D.png?size=128"
    )


def test_what_is_not_given_is_not_sent() -> None:
    assert sent("job_page", limit=3).url.query == b"limit=3"
    assert sent("folders").url.query == b""


def test_every_state_of_a_job_can_be_asked_for(paths: dict[str, Any]) -> None:
    described = str(paths["/v1/jobs"]["get"])

    assert all(state in described for state in get_args(State))


def test_a_path_to_an_image_is_sent_as_its_name_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"png")

    request = sent(
        "score_images",
        job_id="job",
        images=[tmp_path / "a.png", b"other"],
        labels=["cat", None],
    )

    body = request.read()
    assert b'name="images"; filename="a.png"' in body
    assert b'name="images"; filename="image 1"' in body
    assert [part in body for part in (b"png\r\n", b"other\r\n", b"cat\r\n")] == [True] * 3
    assert body.count(b'name="labels"') == 2


@dataclass
class BusyTwice(httpx2.BaseTransport):
    """Answers that it is busy, twice; remembers what was sent."""

    bodies: list[bytes] = field(default_factory=list)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.SyncByteStream)
        self.bodies.append(b"".join(request.stream))
        if len(self.bodies) < 3:
            return httpx2.Response(429, headers={"Retry-After": "0"})
        return httpx2.Response(200, json={"gaussians": "job", "samples": []})


def test_a_form_is_sent_again_whole_while_the_service_is_busy() -> None:
    busy = BusyTwice()

    with Client("http://localhost", transport=busy) as client:
        assert client.score_images("job", [b"an image"]).samples == []

    first, second, third = busy.bodies
    assert b"an image" in first
    assert first == second == third
