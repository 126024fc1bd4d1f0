"""Sends changed requests and files to a running service: a program, with a process of its own.

    python tests/api/live/fuzzing URL KEY JOB FOLDER FIRST LAST

JOB has finished, and FOLDER is the root `tables` of the service. Prints a line for each answer that
is missing or says that the server failed, with the number by which the same is sent again. Now and
then, and at the end, it prints how many answers of each status there were, as JSON.
"""

import http.client
import json
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Lock

from datasets import changed_dataset, changed_table, changed_upload
from mutations import changed_bytes
from targets import Scored, Target, changed, targets_of
from wire import Answer, Request, Wire

from difficulty_service.backbones import BACKBONES

SEED = 21
CLASSES = ["bird", "cat", "dog"]
DIM = BACKBONES["builtin"].facts.feature_dim
"""Number of features of the backbone `builtin`."""

JSON = {"Content-Type": "application/json"}
SERVER_ERROR = 500
THREADS = 6
"""Each with a connection; several, because some wait for a job or an answer that never comes."""

UPLOADS_OF_100 = 6
HEADS_OF_100 = 6
IN_PARTS_OF_100 = 25
"""Uploads that are sent in two requests instead of one."""

JOB_EVERY = 210
"""One in so many numbers is a job on changed files instead of a request; one costs as much as 100
requests, and most of its dozens of images are changed. The first four are on files of four
kinds."""

REPORT_EVERY = 5000
UPLOADS = "/v1/uploads"

Answers = Iterator[tuple[str, Answer]]
"""What was sent, in words, and its answer."""


@dataclass(frozen=True)
class Fuzzer:
    """Sends what belongs to a number."""

    wire: Wire  # the connection
    key: dict[str, str]  # header with the key
    folder: Path  # folder for tables
    targets: list[Target]  # valid requests

    def send(self, number: int) -> Answers:
        """What is sent for a number, in words, and its answers."""
        random = Random(f"{SEED} {number}")  # noqa: S311 - no secret
        chance = random.randrange(100)
        if number % JOB_EVERY == 0:
            yield from self._jobs(random)
        elif chance < UPLOADS_OF_100:
            yield from self._uploads(random)
        else:
            weights = [target.weight for target in self.targets]
            (target,) = random.choices(self.targets, weights)
            request = changed(random, target).with_headers(self.key)
            if chance >= UPLOADS_OF_100 + HEADS_OF_100:
                answer = self.wire.send(request)
                yield f"{request}"[:400], answer
            else:
                raw = changed_bytes(random, request.head()) + request.body
                answer = self.wire.send_raw(raw)
                # No answer need come to what may be only the beginning of a request.
                yield f"{raw!r}"[:400], answer if answer.status else Answer(400)
            if request.path == UPLOADS and answer.status == http.client.CREATED:
                # A key may have a hundred open ones.
                yield "DELETE upload", self.ask("DELETE", address_of(answer))

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        """The answer to a valid request."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.wire.send(Request(method, path, headers=self.key | JSON, body=content))

    def _uploads(self, random: Random) -> Answers:
        kind, content = changed_upload(random)
        parts = 2 if random.randrange(100) < IN_PARTS_OF_100 else 1
        address = yield from self._uploaded(kind, content, parts)
        yield f"DELETE {address}", self.ask("DELETE", address)

    def _uploaded(
        self, kind: str, content: bytes, parts: int = 1
    ) -> Generator[tuple[str, Answer], None, str]:
        """Sends an upload; returns its address."""
        created = self.ask("POST", UPLOADS, {"format": kind, "size": len(content) or None})
        yield f"announce {kind}", created
        if created.status != http.client.CREATED:
            raise RuntimeError(f"no upload could be announced: {created}")
        address = address_of(created)
        bounds = [len(content) * part // parts for part in range(parts + 1)]
        for offset, end in pairwise(bounds):
            query = {"offset": str(offset)} | ({"complete": "true"} if end == bounds[-1] else {})
            put = Request("PUT", address, query, self.key, content[offset:end])
            yield f"{kind} from byte {offset}", self.wire.send(put)
        return address

    def _jobs(self, random: Random) -> Answers:
        if random.random() < 0.5:
            address = yield from self._uploaded(*changed_dataset(random))
            dataset = {"upload": address.rpartition("/")[2]}
        else:
            name, content = changed_table(random)
            address = ""
            name = f"{random.getrandbits(32)}-{name}"
            (self.folder / name).write_bytes(content)
            dataset = {"root": "tables", "path": name}
        submitted = self.ask("POST", "/v1/jobs", {"dataset": dataset, "backbone": "builtin"})
        yield f"job on {dataset}", submitted
        if submitted.status == http.client.ACCEPTED:
            yield from self._followed(json.loads(submitted.content)["id"])
        if address:
            yield f"DELETE {address}", self.ask("DELETE", address)

    def _followed(self, job: str) -> Answers:
        """What is asked of a job until it is deleted."""
        yield "events", self.ask("GET", f"/v1/jobs/{job}/events")
        state = self.ask("GET", f"/v1/jobs/{job}")
        failed_itself = (json.loads(state.content)["error"] or {}).get("type") == "internal"
        yield f"{state.content!r}", Answer(SERVER_ERROR) if failed_itself else state
        for page in ("", "/images", "/images/0", "/images/0/picture", "/classes", "/map/points"):
            yield f"page {page}", self.ask("GET", f"/jobs/{job}{page}")
        yield "DELETE job", self.ask("DELETE", f"/v1/jobs/{job}")


def address_of(created: Answer) -> str:
    """The address of an upload, as the answer to its announcement has it."""
    return str(json.loads(created.content)["links"]["self"])


def scored_by(fuzzer: Fuzzer, job: str) -> Scored:
    """A finished job and an upload that has not begun."""
    upload = json.loads(fuzzer.ask("POST", "/v1/uploads", {"format": "zip"}).content)["id"]
    scores = json.loads(fuzzer.ask("GET", f"/v1/jobs/{job}/scores").content)
    return Scored(job, upload, scores["samples"][0]["sample_id"], CLASSES, DIM)


@dataclass
class Report:
    """Prints what was found, by several threads."""

    statuses: Counter[int] = field(default_factory=Counter)  # number of answers of each status
    numbers: int = 0  # number of numbers that were sent
    lock: Lock = field(default_factory=Lock)  # held by the thread that changes these or prints

    def add(self, number: int, answers: Answers) -> None:
        """Counts the answers for a number, and prints those that no service should give."""
        for what, answer in answers:
            with self.lock:
                self.statuses[answer.status] += 1
                if not 0 < answer.status < SERVER_ERROR:
                    self._print(f"{number} {answer.status} {what} {answer.content[:300]!r}")
        with self.lock:
            self.numbers += 1
            if self.numbers % REPORT_EVERY == 0:
                self.print_statuses()

    def print_statuses(self) -> None:
        """Prints how many answers of each status there were, in one line of JSON."""
        self._print(json.dumps(self.statuses))

    def _print(self, line: str) -> None:
        sys.stdout.write(line.replace("\n", " ") + "\n")
        sys.stdout.flush()


def main(url: str, key: str, job: str, folder: str, numbers: range) -> None:
    """Sends what belongs to the numbers."""
    host, _, port = url.rpartition("/")[2].partition(":")
    address = (host, int(port))
    headers = {"Authorization": f"Bearer {key}"}
    fuzzer = Fuzzer(Wire(address), headers, Path(folder), [])
    fuzzer.targets.extend(targets_of(scored_by(fuzzer, job)))
    report = Report()
    left = iter(numbers)  # of which each thread takes the next

    def send_next() -> None:
        own = replace(fuzzer, wire=Wire(address))
        for number in left:
            report.add(number, own.send(number))

    with ThreadPoolExecutor(THREADS) as pool:
        ended = [pool.submit(send_next) for _ in range(THREADS)]
    for each in ended:
        each.result()
    report.print_statuses()


main(*sys.argv[1:5], range(*map(int, sys.argv[5:7])))
