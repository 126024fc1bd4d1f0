"""One key that sends images made to be slow takes neither time nor memory from another key."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from tests.api.live.running import Service, StartService
from tests.factories import png_of, write_image_folder

MANY = 45
SIDE = 3000
ROOM = 300 << 20  # bytes that the server and its processes may keep
OK, TOO_MANY = 200, 429


@dataclass(frozen=True)
class Attack:
    """A service with a key that attacks, a key that does not, and a job of each."""

    service: Service  # the service
    key: str  # secret of the key that attacks
    job: str  # id of its job, whose dataset has the image `a/huge.png`
    other_key: str  # secret of the other key
    other_job: str  # id of the same job of the other key
    huge: bytes  # that image, which is small as a file and takes a tenth of a second to decode
    small: bytes  # an ordinary image

    def thumbnail(self, size: int) -> httpx2.Response:
        """A thumbnail of the huge image; with a size of its own each is made."""
        with self.service.client(self.key) as client:
            return client.get(f"/v1/jobs/{self.job}/thumbnails/a%2Fhuge.png", params={"size": size})

    def score(self, _number: int) -> httpx2.Response:
        """The huge image, scored."""
        return self.scored(self.key, self.job, self.huge)

    def scored(self, key: str, job: str, image: bytes) -> httpx2.Response:
        """An image, scored against a job."""
        with self.service.client(key) as client:
            files = [("images", ("image.png", image))]
            return client.post(f"/v1/gaussians/{job}/score", files=files)


@pytest.fixture(scope="module")
def huge_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `set`, where one image has 9 million pixels in a file of 27 kB."""
    folder = tmp_path_factory.mktemp("huge")
    write_image_folder(folder / "set", ("a", "b"), each=6)
    (folder / "set" / "a" / "huge.png").write_bytes(png_of("olive", (SIDE, SIDE)))
    return folder


@pytest.fixture(scope="module")
def attack(start_for_all: StartService, huge_photos: Path) -> Attack:
    sqlite_url = f"sqlite:///{huge_photos / 'difficulty.sqlite'}"
    # Not forked: the memory of the server's children is counted.
    roots = f'{{"huge": "{huge_photos}"}}'
    service = start_for_all(sqlite_url, forks=False, roots=roots)
    keys = [service.new_key("attacker"), service.new_key("other")]
    jobs = []
    for key in keys:
        with service.client(key) as client:
            body = {"dataset": {"root": "huge", "path": "set"}, "backbone": "builtin"}
            job = client.post("/v1/jobs", json=body | {"shrinkage": 0.5}).json()
            client.get(job["links"]["events"])  # until it has ended
            jobs.append(job["id"])
    images = [(huge_photos / "set" / "a" / name).read_bytes() for name in ("huge.png", "0.png")]
    attack = Attack(service, keys[0], jobs[0], keys[1], jobs[1], *images)
    assert attack.scored(keys[0], jobs[0], images[1]).status_code == OK  # the encoder is loaded
    return attack


@pytest.mark.long
def test_thumbnails_of_one_key_delay_no_request_of_another_and_leave_no_memory(
    attack: Attack,
) -> None:
    before, peaks = memory_of(attack.service.processes[0]), attack.service.peak_memories()

    with sent(attack.thumbnail) as answers:
        began = time.monotonic()
        with attack.service.client(attack.other_key) as client:
            thumbnail = client.get(f"/v1/jobs/{attack.other_job}/thumbnails/a%2F0.png")
        is_early = not all(each.done() for each in answers)
        longest = max(times_of_lists(attack, answers))
        duration = time.monotonic() - began

    assert {each.result().status_code for each in answers} == {OK}
    assert (thumbnail.status_code, is_early) == (OK, True)
    assert longest < duration / 3
    assert memory_of(attack.service.processes[0]) - before < ROOM
    assert attack.service.growth_since(peaks) < ROOM


@pytest.mark.long
def test_scorings_of_one_key_delay_no_request_of_another(attack: Attack) -> None:
    before = memory_of(attack.service.processes[0])

    with sent(attack.score) as answers:
        began = time.monotonic()
        scored = attack.scored(attack.other_key, attack.other_job, attack.small)
        is_early = not all(each.done() for each in answers)
        longest = max(times_of_lists(attack, answers))
        duration = time.monotonic() - began

    refused = [each.result() for each in answers if each.result().status_code != OK]
    assert 0 < len(refused) < MANY
    assert {answer.status_code for answer in refused} == {TOO_MANY}
    assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
    assert {answer.json()["type"] for answer in refused} == {"/problems/too-many-requests"}
    assert (scored.status_code, is_early) == (OK, True)
    assert longest < duration / 3
    assert memory_of(attack.service.processes[0]) - before < ROOM


@contextmanager
def sent(send: Callable[[int], httpx2.Response]) -> Iterator[list[Future[httpx2.Response]]]:
    """Sends many requests at once."""
    with ThreadPoolExecutor(MANY) as pool:
        yield [pool.submit(send, 16 + number) for number in range(MANY)]


def times_of_lists(attack: Attack, answers: list[Future[httpx2.Response]]) -> Iterator[float]:
    """Seconds that each list of the other key takes while the requests are answered."""
    with attack.service.client(attack.other_key) as client:
        while not all(each.done() for each in answers):
            began = time.monotonic()
            client.get("/v1/jobs").raise_for_status()
            yield time.monotonic() - began
            time.sleep(0.05)


def memory_of(process: int) -> int:
    """Bytes in memory of a process and of those that it has started."""
    folder = Path(f"/proc/{process}")
    (own,) = re.findall(r"^VmRSS:\s+(\d+) kB$", (folder / "status").read_text(), re.MULTILINE)
    children = " ".join(each.read_text() for each in folder.glob("task/*/children"))
    return (int(own) << 10) + sum(memory_of(int(child)) for child in children.split())
