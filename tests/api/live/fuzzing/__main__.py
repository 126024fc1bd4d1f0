"""Sends changed requests and files to a running service: a program, with processes of its own.

    python tests/api/live/fuzzing URL KEY JOB FOLDER FIRST LAST

JOB has finished, and FOLDER is the root `tables` of the service. Prints a line for each answer that
is missing or says that the server failed, with the number by which the same is sent again; at the
end it prints how many answers of each status there were, as JSON.
"""

import http.client
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from datasets import changed_table, changed_upload
from mutations import changed_bytes
from targets import Scored, Target, changed, targets_of
from wire import Answer, Request, Wire

SEED = 20
CLASSES = ["bird", "cat", "dog"]
DIM = 512
"""Number of features of the backbone `builtin`."""

JSON = {"Content-Type": "application/json"}
SERVER_ERROR = 500
UPLOADS_OF_100 = 6
HEADS_OF_100 = 6
JOB_EVERY = 400
"""One in so many numbers is a job on a changed file instead of a request."""


@dataclass(frozen=True)
class Fuzzer:
    """Sends what belongs to a number.

    Attributes:
        wire: The connection.
        key: Header with the key.
        folder: Folder for tables.
        targets: Valid requests.
    """

    wire: Wire
    key: dict[str, str]
    folder: Path
    targets: list[Target]

    def send(self, number: int) -> Iterator[tuple[str, Answer]]:
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
                yield f"{request}"[:400], self.wire.send(request)
                return
            raw = changed_bytes(random, request.head()) + request.body
            answer = self.wire.send_raw(raw)
            # No answer need come to what may be only the beginning of a request.
            yield f"{raw!r}"[:400], answer if answer.status else Answer(400)

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        """The answer to a valid request."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.wire.send(Request(method, path, headers=self.key | JSON, body=content))

    def _uploads(self, random: Random) -> Iterator[tuple[str, Answer]]:
        kind, content = changed_upload(random)
        address, answers = self._uploaded(kind, content)
        yield from answers
        yield f"DELETE {address}", self.ask("DELETE", address)

    def _uploaded(self, kind: str, content: bytes) -> tuple[str, list[tuple[str, Answer]]]:
        created = self.ask("POST", "/v1/uploads", {"format": kind, "size": len(content) or None})
        address = json.loads(created.content)["links"]["self"]
        half = len(content) // 2
        answers = [("create", created)]
        for offset, part in ((0, content[:half]), (half, content[half:])):
            query = {"offset": str(offset)} | ({"complete": "true"} if offset == half else {})
            put = Request("PUT", address, query, self.key, part)
            answers.append((f"{kind} in part {offset}", self.wire.send(put)))
        return address, answers

    def _jobs(self, random: Random) -> Iterator[tuple[str, Answer]]:
        if random.random() < 0.5:
            kind, content = changed_upload(random)
            address, answers = self._uploaded(kind, content)
            yield from answers
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

    def _followed(self, job: str) -> Iterator[tuple[str, Answer]]:
        """What is asked of a job until it is deleted."""
        yield "events", self.ask("GET", f"/v1/jobs/{job}/events")
        state = self.ask("GET", f"/v1/jobs/{job}")
        failed_itself = (json.loads(state.content)["error"] or {}).get("type") == "internal"
        yield f"{state.content!r}", Answer(SERVER_ERROR) if failed_itself else state
        for page in ("", "/images", "/images/0", "/images/0/picture", "/classes", "/map/points"):
            yield f"page {page}", self.ask("GET", f"/jobs/{job}{page}")
        yield "DELETE job", self.ask("DELETE", f"/v1/jobs/{job}")


def scored_by(fuzzer: Fuzzer, job: str) -> Scored:
    """A finished job and an upload that has not begun."""
    upload = json.loads(fuzzer.ask("POST", "/v1/uploads", {"format": "zip"}).content)["id"]
    scores = json.loads(fuzzer.ask("GET", f"/v1/jobs/{job}/scores").content)
    return Scored(job, upload, scores["samples"][0]["sample_id"], CLASSES, DIM)


def main(url: str, key: str, job: str, folder: str, numbers: range) -> None:
    """Sends what belongs to the numbers."""
    host, _, port = url.rpartition("/")[2].partition(":")
    headers = {"Authorization": f"Bearer {key}"}
    fuzzer = Fuzzer(Wire((host, int(port))), headers, Path(folder), [])
    fuzzer.targets.extend(targets_of(scored_by(fuzzer, job)))
    statuses: Counter[int] = Counter()
    for number in numbers:
        for what, answer in fuzzer.send(number):
            statuses[answer.status] += 1
            if not 0 < answer.status < SERVER_ERROR:
                line = f"{number} {answer.status} {what} {answer.content[:300]!r}"
                sys.stdout.write(line.replace("\n", " ") + "\n")
    sys.stdout.write(json.dumps(statuses) + "\n")


main(*sys.argv[1:5], range(*map(int, sys.argv[5:7])))
