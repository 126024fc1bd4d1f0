"""The server stops while clients take their answers slowly."""

import os
import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.api.live.many_samples import imported_job, scores_of_many_samples
from tests.api.live.raw_connections import answer_of
from tests.api.live.running import Service, StartService

SAMPLES = 400_000
HEAD_END = b"\r\n\r\n"


@pytest.mark.long
def test_a_download_in_progress_is_cut_when_the_server_stops_without_a_traceback(
    start_service: StartService, sqlite_url: str, tmp_path: Path
) -> None:
    service = start_service(sqlite_url)
    key = service.new_key("slow")
    content = scores_of_many_samples(tmp_path / "scores.parquet", SAMPLES)
    job = imported_job(service, content, "slow")
    log = tmp_path / "server.log"

    with beginning(service, key, f"/v1/jobs/{job}/scores.parquet") as connection:
        os.kill(service.processes[0], signal.SIGTERM)
        while "server-stopped" not in log.read_text():
            time.sleep(0.1)
        head, _, body = answer_of(connection).partition(HEAD_END)

    size = (tmp_path / "scores.parquet").stat().st_size
    assert head.startswith(b"HTTP/1.1 200")
    assert f"content-length: {size}\r\n".encode() in head + b"\r\n"
    assert 0 < len(body) < size
    assert "Traceback" not in log.read_text()


def beginning(service: Service, secret: str, address: str) -> socket.socket:
    """A connection with the beginning of an answer, of which its client has read nothing."""
    parts = urlsplit(service.url)
    connection = socket.create_connection((str(parts.hostname), parts.port or 80))
    head = f"GET {address} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {secret}\r\n\r\n"
    connection.sendall(head.encode())
    connection.recv(1, socket.MSG_PEEK)
    return connection
