"""Every change is a line of JSON that says who made it; nothing secret, and never half a line."""

import io
import json
import logging
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import Engine

from api.audit_log import AUDIT, AuditFile, open_audit_file
from api.key_commands import change, create, revoke, rotate
from api.logs import set_up_logging
from api.settings import Settings
from api.storage.keys import create_key
from difficulty_service.base.errors import ConfigError
from tests.service import ServiceClient, client_of, logging_restored

LINES = 200


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """The file of the audit log; restores the configuration of all logs afterwards."""
    with logging_restored():
        yield tmp_path / "audit.jsonl"
        set_up_logging(Settings())


@pytest.fixture
def client(tmp_path: Path, file: Path) -> Iterator[ServiceClient]:
    """A client of a service that logs nothing but errors, and keeps an audit log."""
    (tmp_path / "photos").mkdir()
    set_up_logging(Settings(audit_log=file, log_level="error"))
    roots = {"photos": str(tmp_path / "photos")}
    with client_of(tmp_path / "data", follow_redirects=False, roots=roots) as client:
        yield client


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_changes_name_key_address_route_job_and_outcome_and_nothing_secret(
    client: ServiceClient, file: Path
) -> None:
    key, secret = create_key(client.engine, "laptop", ["write"])
    headers = {"X-API-Key": secret}
    body = {"dataset": {"root": "photos", "path": ""}}

    submitted = client.post("/v1/jobs?private=query", json=body, headers=headers)
    job = submitted.json()["id"]
    client.get(f"/v1/jobs/{job}", headers=headers)
    client.delete(f"/v1/jobs/{job}", headers=headers)
    client.delete(f"/v1/jobs/{'0' * 26}", headers=headers)

    first, second, third = lines(file)
    assert first["timestamp"].endswith("Z")
    assert first["request_id"] == submitted.headers["X-Request-ID"]
    assert {name: first[name] for name in ("event", "key", "key_name", "method", "route")} == {
        "event": "change",
        "key": key.id,
        "key_name": "laptop",
        "method": "POST",
        "route": "/v1/jobs",
    }
    assert (first["client"], first["status"]) == ("testclient", 202)
    assert first["location"] == f"/v1/jobs/{job}"
    assert (second["method"], second["job"], second["status"]) == ("DELETE", job, 200)
    assert (third["status"], third["problem"]) == (404, "not-found")
    text = file.read_text()
    assert secret not in text
    assert "private" not in text
    assert "photos" not in text


def test_signing_in_is_a_change_whether_it_succeeds_or_not(
    client: ServiceClient, file: Path
) -> None:
    key, secret = create_key(client.engine, "laptop", ["read"])

    client.post("/sign-in", data={"key": "difficulty_guessed"})
    client.post("/sign-in", data={"key": secret})

    guessed, known = lines(file)
    assert (guessed["status"], guessed["key"], guessed["key_name"]) == (401, None, None)
    assert (known["status"], known["key"], known["key_name"]) == (303, key.id, "laptop")
    assert secret not in file.read_text()
    assert "guessed" not in file.read_text()


def test_what_only_computes_and_what_strangers_are_refused_is_no_change(
    client: ServiceClient, file: Path
) -> None:
    _, secret = create_key(client.engine, "laptop", ["write"])
    headers = {"X-API-Key": secret}

    for path in ("/v1/estimates", "/estimate", f"/v1/gaussians/{'0' * 26}/score"):
        client.post(path, json={}, headers=headers)
    client.post("/v1/jobs", json={})

    assert lines(file) == []


def test_without_a_file_changes_are_lines_of_the_log(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not file.exists()
    set_up_logging(Settings())

    with client_of(tmp_path / "data") as client:
        client.post("/v1/uploads", json={"format": "zip"})

    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (change,) = [each for each in events if each["event"] == "change"]
    assert (change["route"], change["status"], change["key"]) == ("/v1/uploads", 201, None)


def test_the_commands_of_keys_are_changes_by_an_account(
    sqlite_engine: Engine,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sqlite_engine.url
    monkeypatch.setenv("DIFFICULTY_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("DIFFICULTY_AUDIT_LOG", str(file))
    monkeypatch.setenv("LOGNAME", "operator")

    create("laptop", roots="photos")
    (made,) = lines(file)
    change(made["key"], roots="*")
    rotate(made["key"])
    revoke(made["key"])

    text = file.read_text()
    assert [each["command"] for each in lines(file)] == [
        f"keys {name}" for name in ("create", "change", "rotate", "revoke")
    ]
    assert [each["roots"] for each in lines(file)] == [["photos"], None, None, None]
    assert {(each["account"], each["key_name"]) for each in lines(file)} == {("operator", "laptop")}
    secrets = [each for each in capsys.readouterr().out.split() if each.startswith("difficulty_")]
    assert len(secrets) == 2
    assert all(secret not in text for secret in secrets)


def test_a_file_that_was_moved_away_is_made_again_as_soon_as_it_can_be(file: Path) -> None:
    set_up_logging(Settings(audit_log=file))
    log = structlog.get_logger(AUDIT)

    log.info("first")
    file.rename(file.with_suffix(".1"))
    file.mkdir()
    log.info("lost")
    file.rmdir()
    log.info("second")

    assert [each["event"] for each in lines(file.with_suffix(".1"))] == ["first"]
    assert [each["event"] for each in lines(file)] == ["second"]
    assert file.stat().st_mode & 0o007 == 0


def write_lines(file: Path, letter: str) -> None:
    handler = open_audit_file(file)
    for _ in range(LINES):
        handler.handle(logging.makeLogRecord({"msg": json.dumps(letter * 3000)}))


def test_lines_of_several_processes_stay_whole(file: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_lines, args=(file, letter)) for letter in "abc"]

    for each in writers:
        each.start()
    for each in writers:
        each.join()

    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(found) == [letter * 3000 for letter in "abc" for _ in range(LINES)]


def test_a_line_that_cannot_be_written_is_in_the_log_and_the_answer_is_given(
    client: ServiceClient, file: Path
) -> None:
    stream = io.StringIO()
    set_up_logging(Settings(audit_log=file, log_level="error"), stream)
    file.unlink()
    file.symlink_to("/dev/full")

    answer = client.post("/v1/uploads", json={"format": "zip"})

    assert answer.status_code == 201
    (failure,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert failure["event"] == "audit-log-unwritable"
    assert failure["level"] == "error"
    assert "No space left" in failure["reason"]
    assert json.loads(failure["line"])["route"] == "/v1/uploads"


def test_a_line_that_was_cut_by_a_full_disk_spoils_no_other(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(Settings(audit_log=file))
    log = structlog.get_logger(AUDIT)
    write = os.write

    log.info("whole")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
        log.info("cut")
    log.info("next")

    written = file.read_text().splitlines()
    assert [json.loads(written[place])["event"] for place in (0, 2)] == ["whole", "next"]
    assert len(written[1]) == 10
    assert '\\"event\\": \\"cut\\"' in capsys.readouterr().err


def test_a_file_that_cannot_be_made_is_named_before_the_server_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit log cannot be written.*DIFFICULTY_AUDIT_LOG"):
        set_up_logging(Settings(audit_log=tmp_path / "nowhere" / "audit.jsonl"))

    assert not any(isinstance(each, AuditFile) for each in logging.getLogger(AUDIT).handlers)
