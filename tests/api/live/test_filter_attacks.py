"""A key that filters a large column of texts keeps nobody else from their lists, and nobody's time.

The texts are made to be looked for slowly: the column repeats what they begin with.
"""

import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.live.many_samples import ids_of, imported_job, scores_of_many_samples
from tests.api.live.running import Service, StartService

SAMPLES, LETTERS = 40_000, 1000
MANY = 45
ROOM = 150 << 20  # bytes that the server may grow by
OK, REFUSED, TOO_MANY, CLOSED, STOPPING = 200, 422, 429, 499, 503
SLOW_TEXTS = ["a" * (90 + number) + "b" + "a" * (98 - number) + "c" for number in range(10)]
SLOW = urlencode([("has.note", text) for text in SLOW_TEXTS])
QUICK = urlencode({"has.note": "a", "limit": 1})
MORE = urlencode([("has.note", f"text {number}") for number in range(200)])


@dataclass(frozen=True)
class Attack:
    """A service with a key that attacks and one that does not, which have a job each."""

    service: Service
    key: str
    job: str
    other_key: str
    other_job: str
    log: Path  # of the server

    def ask(self, conditions: str = SLOW) -> httpx2.Response:
        """A filtered list of the key that attacks."""
        with self.service.client(self.key) as client:
            return client.get(f"/v1/jobs/{self.job}/scores?{conditions}")

    def ask_and_leave(self) -> None:
        """Asks for the same and closes the connection."""
        parts = urlsplit(self.service.url)
        with socket.create_connection((str(parts.hostname), parts.port or 80)) as connection:
            head = f"GET /v1/jobs/{self.job}/scores?{SLOW} HTTP/1.1\r\nHost: localhost\r\n"
            connection.sendall(f"{head}X-API-Key: {self.key}\r\n\r\n".encode())

    def statuses(self) -> Counter[int]:
        """How often a list of scores was answered with each status."""
        events = [json.loads(line) for line in self.log.read_text().splitlines()]
        return Counter(
            each["status"]
            for each in events
            if each["event"] == "request" and each["path"] == f"/v1/jobs/{self.job}/scores"
        )


@pytest.fixture
def attack(start_service: StartService, sqlite_url: str, tmp_path: Path) -> Attack:
    service = start_service(sqlite_url)
    table = tmp_path / "notes.parquet"
    notes = pa.array([f"{row} {'a' * LETTERS}" for row in range(SAMPLES)])
    pq.write_table(pa.table({"sample_id": ids_of(SAMPLES), "note": notes}), table)
    known = []
    for seed, name in enumerate(("attacker", "other")):
        key = service.new_key(name)
        content = scores_of_many_samples(tmp_path / "scores.parquet", SAMPLES, seed)
        job = imported_job(service, content, name)
        with service.client(key) as client:
            address = f"/v1/jobs/{job}/columns/notes.parquet"
            client.put(address, content=table.read_bytes()).raise_for_status()
            client.get(f"/v1/jobs/{job}/scores?{QUICK}").raise_for_status()
        known += [key, job]
    return Attack(service, *known, log=tmp_path / "server.log")


@contextmanager
def sent(send: Callable[[], Any], number: int) -> Iterator[list[Future[Any]]]:
    """Sends many requests at once."""
    with ThreadPoolExecutor(number) as pool:
        yield [pool.submit(send) for _ in range(number)]


@pytest.mark.long
def test_filters_of_one_key_delay_neither_lists_nor_filters_of_another(attack: Attack) -> None:
    before = attack.service.peak_memories()

    with sent(attack.ask, MANY) as answers, attack.service.client(attack.other_key) as client:
        filtered, lists = [], []
        while not all(each.done() for each in answers):
            filtered.append(client.get(f"/v1/jobs/{attack.other_job}/scores?{QUICK}").status_code)
            lists.append(client.get("/v1/jobs").status_code)

    statuses = [each.result().status_code for each in answers]
    assert {*statuses} == {OK, TOO_MANY}
    assert {*filtered, *lists} == {OK}
    # While the one key waits for each answer in turn, the other one has several.
    assert len(filtered) > statuses.count(OK)
    assert attack.service.growth_since(before) < ROOM


@pytest.mark.slow
def test_more_texts_than_are_looked_for_at_once_are_refused_in_words(attack: Attack) -> None:
    answer = attack.ask(MORE)

    assert (answer.status_code, answer.json()["field"]) == (REFUSED, "query")
    assert answer.json()["detail"].startswith("200 texts are more than the 10")
    assert answer.json()["remedy"] == "leave some out"


@pytest.mark.slow
def test_filters_end_when_their_clients_close_the_connection(attack: Attack) -> None:
    number = 12
    for _ in range(number):
        attack.ask_and_leave()

    while attack.statuses().total() < number + 1:
        time.sleep(0.1)

    assert attack.statuses() == {OK: 1, CLOSED: number}
    assert attack.ask(QUICK).status_code == OK


@pytest.mark.slow
def test_filters_in_progress_are_answered_when_the_server_stops_without_a_traceback(
    attack: Attack,
) -> None:
    with sent(attack.ask, 16) as answers:
        wait(answers, return_when=FIRST_COMPLETED)  # one of a key at a time: the others wait
        os.kill(attack.service.processes[0], signal.SIGTERM)
        wait(answers)
    # One that comes late may find the door closed.
    failures = [each.exception() for each in answers if each.exception() is not None]
    assert {type(failure) for failure in failures} <= {httpx2.ConnectError}
    statuses = [each.result().status_code for each in answers if each.exception() is None]
    while "server-stopped" not in attack.log.read_text():
        time.sleep(0.1)

    assert {*statuses} <= {OK, STOPPING}
    assert STOPPING in statuses
    assert "Traceback" not in attack.log.read_text()
