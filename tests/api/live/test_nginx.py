"""The service behind nginx as docker/nginx.conf sets it up: what passes, and what is stopped."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.api.live.raw_connections import HEAD, POST, answer_of
from tests.api.live.running import Service, StartService
from tests.ports import unused_port
from tests.small_network import SMALL

CONFIGURATION = Path(__file__).resolve().parents[3] / "docker" / "nginx.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
AT_ONCE = 64
RATE = 100  # requests of an address

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
]


@contextmanager
def running_nginx(folder: Path, upstream: str) -> Iterator[httpx2.Client]:
    """Nginx with that configuration before a server, with a shorter time limit of heads."""
    port = unused_port()
    text = CONFIGURATION.read_text()
    for before, after in {
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "server api:8000;": f"server {upstream};",
        "client_header_timeout 10s;": "client_header_timeout 1s;",
        "/tmp/": f"{folder}/",  # noqa: S108 - of the container
    }.items():
        assert before in text
        text = text.replace(before, after)
    (folder / "nginx.conf").write_text(text)
    command = [str(NGINX), "-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    process = subprocess.Popen(command)  # noqa: S603 - our own file
    try:
        while not can_connect(port):
            assert process.poll() is None
            time.sleep(0.02)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait(20)


def can_connect(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture(scope="module")
def behind(start_for_all: StartService, photos: Path) -> Service:
    """A service that trusts a proxy on this machine."""
    folder = photos.parent / "behind"
    folder.mkdir()
    settings = {"trusted_proxies": '["127.0.0.0/8"]', "rate_limit": f"{RATE}/day"}
    return start_for_all(f"sqlite:///{folder / 'difficulty.sqlite'}", **settings)


@pytest.fixture(scope="module")
def proxy(behind: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of nginx before that service."""
    with running_nginx(tmp_path_factory.mktemp("nginx"), urlsplit(behind.url).netloc) as client:
        yield client


def connected(proxy: httpx2.Client, source: int) -> socket.socket:
    address = (str(proxy.base_url.host), proxy.base_url.port or 80)
    return socket.create_connection(address, 20, (f"127.0.0.{source}", 0))


def test_a_job_its_events_and_ranges_of_its_scores_pass(proxy: httpx2.Client) -> None:
    body = {"dataset": {"root": "photos", "path": "train"}, "backbone": SMALL}
    job = proxy.post("/v1/jobs", json=body | {"shrinkage": 0.5}).json()
    with proxy.stream("GET", job["links"]["events"]) as events:
        buffering = events.headers.get("X-Accel-Buffering")
        lines = list(events.iter_lines())
    address = f"{job['links']['self']}/scores.parquet"
    whole = proxy.get(address)
    only = {"If-Range": whole.headers["ETag"], "Range": "bytes=4-99"}
    part = proxy.get(address, headers=only)

    assert buffering is None  # nginx has heard it
    assert any("succeeded" in line for line in lines)
    assert (part.status_code, part.content) == (206, whole.content[4:100])


def test_an_upload_streams_and_resumes(proxy: httpx2.Client) -> None:
    upload = proxy.post("/v1/uploads", json={"format": "zip"}).json()["links"]["self"]
    content = b"x" * 3_000_000

    first = proxy.put(upload, content=iter([content[:1_000_000], content[1_000_000:2_000_000]]))
    second = proxy.put(f"{upload}?offset=2000000", content=content[2_000_000:])

    assert [each.json()["received"] for each in (first, second)] == [2_000_000, 3_000_000]


def test_json_is_compressed_for_those_who_take_it(proxy: httpx2.Client) -> None:
    answer = proxy.get("/openapi.json", headers={"Accept-Encoding": "gzip"})

    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.json()["openapi"]


def test_an_address_that_a_client_claims_does_not_reach_the_service(proxy: httpx2.Client) -> None:
    own = httpx2.HTTPTransport(local_address="127.0.0.50")
    with httpx2.Client(base_url=proxy.base_url, transport=own) as client:
        statuses = [
            client.get("/v1/jobs", headers={"X-Forwarded-For": f"198.51.100.{number}"}).status_code
            for number in range(RATE + 5)
        ]

    assert statuses == [200] * RATE + [429] * 5


REFUSED = {
    "two hosts": b"GET / HTTP/1.1\r\n" + HEAD + HEAD + b"\r\n",
    "a long header": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: " + b"a" * 9000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: 1\r\n" * 3000 + b"\r\n",
    "a long address": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
}


@pytest.mark.parametrize("what", REFUSED)
def test_heads_are_refused_before_the_service(proxy: httpx2.Client, what: str) -> None:
    with connected(proxy, 2) as connection:
        connection.sendall(REFUSED[what])

        answer = answer_of(connection)

    assert answer.split()[1] in {b"400", b"414"}
    assert b"Server: nginx" in answer


def test_a_head_that_never_ends_is_given_up_by_nginx(proxy: httpx2.Client) -> None:
    with connected(proxy, 3) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")

        assert answer_of(connection) == b""


def health(proxy: httpx2.Client, source: int) -> bytes:
    with connected(proxy, source) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n")
        return answer_of(connection)


def test_an_address_with_many_requests_at_once_is_refused_and_others_are_not(
    proxy: httpx2.Client,
) -> None:
    slow = []
    for _ in range(AT_ONCE):  # each sends its head at once, for which it has a second
        slow.append(connected(proxy, 4))
        slow[-1].sendall(POST + b"Content-Length: 1000\r\n\r\n{")

    answers = [health(proxy, 5)]
    for _ in range(200):  # until all have arrived
        answers.insert(0, health(proxy, 4))
        if not answers[0].startswith(b"HTTP/1.1 200"):
            break
        time.sleep(0.05)
    for connection in slow:
        connection.close()

    assert [answers[0].split()[1], answers[-1].split()[1]] == [b"429", b"200"]
    problem = json.loads(answers[0].partition(b"\r\n\r\n")[2])
    assert problem["type"] == "/problems/too-many-requests"


def test_requests_that_are_sent_ahead_reach_the_service_one_by_one(
    proxy: httpx2.Client, behind: Service
) -> None:
    before = behind.peak_memories()
    with connected(proxy, 6) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.2)
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall((b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n") * 1000)

        assert proxy.get("/healthz").json() == {"status": "ok"}

    assert behind.growth_since(before) < 20_000_000


def test_a_service_that_does_not_answer_is_a_problem(tmp_path: Path) -> None:
    with running_nginx(tmp_path, f"127.0.0.1:{unused_port()}") as client:
        answer = client.get("/v1/jobs")

    assert answer.status_code == 503
    assert answer.json()["type"] == "/problems/unavailable"
    assert answer.headers["Retry-After"] == "5"
