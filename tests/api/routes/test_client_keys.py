"""The client sends its key, keeps it to itself, and may do what the key may."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2
import pytest
from fastapi.testclient import TestClient
from mcp import Client as Assistant
from mcp.types import CallToolResult, TextContent

from api.storage.keys import Key
from difficulty_service.base.errors import ConfigError
from difficulty_service.client import Client, Decision, MarkChange, ServiceError
from difficulty_service.client.mcp_server import create_server
from difficulty_service.marks.mark_kinds import Mark

URL = "http://localhost"


class Through(httpx2.BaseTransport):
    """Sends requests to an application in this process."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._client.send(request)
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.fixture
def connect(
    client: TestClient, keys: dict[str, tuple[Key, str]]
) -> Callable[..., "contextmanager[Client]"]:
    @contextmanager
    def connected(name: str) -> Iterator[Client]:
        with Client(URL, keys[name][1], transport=Through(client)) as made:
            yield made

    return connected  # type: ignore[return-value]


def keep(sample_id: str) -> MarkChange:
    return MarkChange(sample_id=sample_id, decision=Decision(mark=Mark.KEEP))


def test_a_key_may_do_what_its_scopes_allow(connect: Callable[..., Client], job: str) -> None:
    with connect("owner") as owner:
        assert owner.mark(job, [keep("s0")]).counts.keep == 1
        assert [each.id for each in owner.jobs()] == [job]
    with connect("stranger") as stranger, pytest.raises(ServiceError) as hidden:
        stranger.job(job)
    with connect("reader") as reader, pytest.raises(ServiceError) as refused:
        reader.mark(job, [keep("s0")])

    assert hidden.value.status == 404
    assert (refused.value.status, refused.value.kind) == (403, "forbidden")
    assert str(refused.value) == (
        "the key has the scopes read, this needs write; use a key made with `--scopes write`"
    )


def test_the_doubtful_samples_are_the_owners_to_filter_by_marks(
    connect: Callable[..., Client], job: str
) -> None:
    with connect("owner") as owner:
        before = [each.sample_id for each in owner.doubtful(job)]
        owner.mark(job, [keep("s0")])
        after = [each.sample_id for each in owner.doubtful(job, mark="none")]

    assert before == ["s0", "s1"]
    assert after == ["s1"]


def test_the_key_is_read_from_the_environment_and_shown_nowhere(
    client: TestClient,
    keys: dict[str, tuple[Key, str]],
    job: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = keys["owner"][1]
    monkeypatch.setenv("DIFFICULTY_KEY", secret + "\n")

    with caplog.at_level(logging.DEBUG), Client(URL, transport=Through(client)) as made:
        assert made.job(job).id == job
        with pytest.raises(ServiceError) as raised:
            made.job("unknown")

    assert repr(made) == "<Client of http://localhost>"
    shown = "".join([repr(vars(raised.value)), str(raised.value), repr(vars(made)), caplog.text])
    assert secret not in shown


@pytest.mark.parametrize("key", ["two words", "schlüssel", "line\nbreak"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(ConfigError, match="no key has") as raised:
        Client(URL, key)

    assert key not in str(raised.value)


@pytest.mark.parametrize("url", ["localhost:8000", "http://me:secret@localhost", "ftp://x", ""])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="http://127") as raised:
        Client(url)

    assert "secret" not in str(raised.value)


def test_a_service_out_of_reach_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("difficulty_service.client.connection.PAUSES", ())

    with Client("http://127.0.0.1:1") as made, pytest.raises(ServiceError) as raised:
        made.folders()

    assert raised.value.status is None
    assert str(raised.value).startswith("GET /v1/folders has no answer (")
    assert str(raised.value).endswith("; check the address of the service, and that it runs")


def test_what_is_no_answer_of_the_service_is_an_error_that_says_so() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/backbones":
            return httpx2.Response(200, json={"backbones": 3})
        if request.url.path == "/v1/folders":
            return httpx2.Response(308, headers={"Location": "https://other.example/v1/folders"})
        return httpx2.Response(502, text="<h1>Bad Gateway</h1>")

    with Client(URL, transport=httpx2.MockTransport(answer)) as made:
        with pytest.raises(ServiceError, match=r"not what this version expects \(backbones: "):
            made.backbones()
        with pytest.raises(ServiceError, match=r"leads to https://other\.example/v1/folders; use"):
            made.folders()
        with pytest.raises(ServiceError, match="answered 502 Bad Gateway; check") as raised:
            made.job("x")
    assert raised.value.status == 502


def test_what_a_newer_service_adds_to_an_answer_is_left_out() -> None:
    body = {"ready": True, "missing": [], "parts": {"a": {"ready": True, "detail": "", "new": 1}}}

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503, json=body | {"newer": request.url.path})

    with Client(URL, transport=httpx2.MockTransport(answer)) as made:
        assert made.readiness().parts["a"].ready


def test_an_assistant_may_do_what_the_key_may_and_is_told_why_not_in_one_line(
    client: TestClient, keys: dict[str, tuple[Key, str]], job: str
) -> None:
    async def told(name: str) -> CallToolResult:
        changes = [keep("s0").model_dump(mode="json", exclude_unset=True)]
        with Client(URL, keys[name][1], transport=Through(client)) as made:
            async with Assistant(create_server(made)) as assistant:
                arguments = {"job_id": job, "changes": changes}
                return await assistant.call_tool("mark_samples", arguments)

    refused, allowed = asyncio.run(told("reader")), asyncio.run(told("owner"))

    assert refused.is_error
    (content,) = refused.content
    assert isinstance(content, TextContent)
    assert content.text.startswith("the key has the scopes read, this needs write; ")
    assert "\n" not in content.text
    assert not allowed.is_error
    assert allowed.structured_content == {
        "counts": {"keep": 1, "relabel": 0, "drop": 0, "misplaced": 0}
    }
