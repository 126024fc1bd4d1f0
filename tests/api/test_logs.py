"""Logs have the required fields, and never secrets or contents."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog
from fastapi import FastAPI, Request

from api.logs import HIDDEN, are_for_people, printable_settings, set_up_logging, without_secrets
from api.settings import Settings
from api.storage.keys import create_key
from tests.service import ServiceClient, client_of, logging_restored

SECRET = "difficulty_" + "s3cr3t-" * 6


ReadLog = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream for logs; restores the logging configuration afterwards."""
    with logging_restored():
        yield io.StringIO()


@pytest.fixture
def read_log(stream: io.StringIO) -> ReadLog:
    """Logs as JSON; returns the events since the last call."""

    def read() -> list[dict[str, Any]]:
        lines = stream.getvalue().splitlines()
        stream.seek(0)
        stream.truncate()
        return [json.loads(line) for line in lines]

    set_up_logging(Settings(), stream)
    return read


def test_an_event_is_one_line_with_level_and_time(read_log: ReadLog) -> None:
    structlog.get_logger().info("job-claimed", job="abc", text="two\nlines")

    (event,) = read_log()
    assert event["event"] == "job-claimed"
    assert event["job"] == "abc"
    assert event["text"] == "two\nlines"
    assert event["level"] == "info"
    assert event["timestamp"].endswith("Z")


def test_what_libraries_log_has_the_same_form(read_log: ReadLog) -> None:
    logging.getLogger("uvicorn.error").warning("port %d is busy", 80)

    (event,) = read_log()
    assert event["event"] == "port 80 is busy"
    assert event["logger"] == "uvicorn.error"


def test_malformed_requests_fill_no_log(read_log: ReadLog) -> None:
    logger = logging.getLogger("uvicorn.error")
    logger.warning("Invalid HTTP request received.")
    logger.warning("Something else.")

    assert [event["event"] for event in read_log()] == ["Something else."]


def test_events_below_the_level_are_left_out(read_log: ReadLog) -> None:
    structlog.get_logger().debug("detail")

    assert read_log() == []


@pytest.mark.parametrize(
    "text",
    [
        f"key {SECRET} was sent",
        f"Authorization: Bearer {SECRET}",
        "authorization: basic s3cr3t-s3cr3t",
        "postgresql://user:s3cr3t-@db/name failed",
        "s3://access:s3cr3t-@bucket/photos",
        "GET /v1/jobs?token=s3cr3t-",
        "s3://bucket/photos?secret_key=s3cr3t-&scheme=http",
    ],
)
def test_secrets_inside_a_text_are_hidden(text: str) -> None:
    shown = without_secrets(text)

    assert "s3cr3t" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text", ["is it there? yes", "score=1.5", "/v1/jobs/abc", "https://host/path", "a@b.example"]
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


def test_secrets_and_contents_are_hidden_however_deep_they_are(read_log: ReadLog) -> None:
    structlog.get_logger().info(
        "odd",
        password="s3cr3t",  # noqa: S106 - not one
        headers={"X-API-Key": "s3cr3t", "accept": "*/*"},
        parts=[{"cookie": "s3cr3t"}, b"\xff\xd8 image"],
    )

    (event,) = read_log()
    assert "s3cr3t" not in str(event)
    assert event["headers"] == {"X-API-Key": HIDDEN, "accept": "*/*"}
    assert event["parts"][1] == "[8 bytes]"


def test_a_traceback_is_part_of_its_event_without_secrets(read_log: ReadLog) -> None:
    try:
        int(f"refused {SECRET}")
    except ValueError:
        structlog.get_logger().exception("failed")

    (event,) = read_log()
    assert "Traceback" in event["exception"]
    assert "ValueError: invalid literal" in event["exception"]
    assert "s3cr3t" not in str(event)


def test_a_text_of_any_length_makes_a_short_line(read_log: ReadLog) -> None:
    structlog.get_logger().info("x" * 10_000_000)

    (event,) = read_log()
    assert len(event["event"]) < 10_000


def test_text_logs_are_readable_lines_without_colours(stream: io.StringIO) -> None:
    set_up_logging(Settings(log_format="text"), stream)

    structlog.get_logger().info("job-claimed", job="abc", password="s3cr3t")  # noqa: S106 - not one

    (line,) = stream.getvalue().splitlines()
    assert "job-claimed" in line
    assert "job=abc" in line
    assert "s3cr3t" not in line
    assert "\x1b" not in line


def test_what_strangers_name_does_not_control_the_terminal_of_text_logs(
    stream: io.StringIO,
) -> None:
    set_up_logging(Settings(log_format="text"), stream)

    error = ValueError("\x1b[2J\x9b1m\u202e of\na file")
    named = {"job": "\x1b[31m", "path": "a\nb", "name": "é"}
    structlog.get_logger().error("at \x1b]0;x\x07", exc_info=error, **named)

    text = stream.getvalue()
    assert text.replace("\n", "").isprintable()
    for shown in (r"at \x1b]0;x\x07", r"job=\x1b[31m", r"'a\nb'", "name=é", "of\na file"):
        assert shown in text


class Terminal(io.StringIO):
    """A stream that people read."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_a_terminal_gets_lines_for_people_and_everything_else_json(stream: io.StringIO) -> None:
    terminal = Terminal()
    for each in (terminal, stream):
        set_up_logging(Settings(), each)
        structlog.get_logger().info("job-claimed", job="abc")

    assert "job=abc" in terminal.getvalue()
    assert json.loads(stream.getvalue())["job"] == "abc"
    assert are_for_people(Settings(), terminal)
    assert not are_for_people(Settings(log_format="json"), terminal)


def test_settings_are_shown_without_passwords() -> None:
    settings = Settings(
        database_url="postgresql://user:s3cr3t@db/name",
        roots={"photos": "s3://access:s3cr3t@bucket/photos?secret_key=s3cr3t"},
        artifacts="s3://access:s3cr3t@bucket/results",
        port=8001,
    )

    shown = printable_settings(settings)

    assert "s3cr3t" not in str(shown)
    assert shown["database_url"].endswith("@db/name")
    assert shown["port"] == 8001
    assert shown.keys() == Settings.model_fields.keys()


@pytest.fixture
def client(tmp_path: Path, read_log: ReadLog) -> Iterator[ServiceClient]:
    with client_of(tmp_path) as client:
        add_routes(client.app)  # type: ignore[arg-type]
        read_log()
        yield client


def add_routes(app: FastAPI) -> None:
    @app.post("/v1/jobs/{job_id}/touch")
    async def touch(job_id: str, request: Request) -> int:
        structlog.get_logger().info("touched", size=len(await request.body()))
        return len(job_id)

    @app.get("/v1/broken")
    def fail() -> None:
        raise RuntimeError("broken")


def test_a_request_is_one_event_with_its_id_and_without_its_query(
    client: ServiceClient, read_log: ReadLog
) -> None:
    identity = uuid4().hex

    client.get("/v1/nothing?token=s3cr3t", headers={"X-Request-ID": identity})

    (event,) = [each for each in read_log() if each["event"] == "request"]
    assert (event["method"], event["path"], event["status"]) == ("GET", "/v1/nothing", 404)
    assert event["request_id"] == identity
    assert event["problem"] == "not-found"
    assert event["milliseconds"] >= 0
    assert "s3cr3t" not in str(event)


def test_what_is_logged_during_a_request_has_its_id_and_nothing_of_its_body(
    client: ServiceClient, read_log: ReadLog
) -> None:
    client.post("/v1/jobs/abc/touch", content=b"s3cr3t image")

    touched, request = [each for each in read_log() if each["event"] in ("touched", "request")]
    assert touched["request_id"] == request["request_id"]
    assert request["job"] == "abc"
    assert "s3cr3t" not in str((touched, request))


def test_a_request_names_its_key_by_id_never_by_secret(
    client: ServiceClient, read_log: ReadLog
) -> None:
    key, secret = create_key(client.engine, "ant", ["read"])

    client.get("/v1/nothing", headers={"Authorization": f"Bearer {secret}"})

    events = read_log()
    assert [each["key"] for each in events if each["event"] == "request"] == [key.id]
    assert secret not in str(events)


def test_an_unforeseen_failure_is_logged_with_its_cause_which_the_client_does_not_see(
    client: ServiceClient, read_log: ReadLog
) -> None:
    response = client.get("/v1/broken")

    failed, request = [each for each in read_log() if each["event"].startswith("request")]
    assert response.status_code == 500
    assert "broken" not in response.text
    assert "RuntimeError: broken" in failed["exception"]
    assert failed["request_id"] == request["request_id"] == response.headers["x-request-id"]
    assert (request["status"], request["problem"]) == (500, "internal")


def test_health_checks_that_succeed_are_not_worth_a_line(
    client: ServiceClient, read_log: ReadLog
) -> None:
    client.get("/healthz")

    assert read_log() == []
