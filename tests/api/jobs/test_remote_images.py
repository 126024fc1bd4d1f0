"""Images at https URLs are fetched from public addresses only, within limits."""

import datetime
import ipaddress
import pickle
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from api.jobs.dataset import root_boundary
from api.jobs.remote_images import FetchLimits, fetch_image, fetch_limits, is_public
from api.settings import Settings
from difficulty_service.base.errors import ImageError


def certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """A self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


class Photos(BaseHTTPRequestHandler):
    """Good and bad answers by their path."""

    def do_GET(self) -> None:
        self.server.hosts.append(self.headers["Host"])  # type: ignore[attr-defined]
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "https://localhost/a.png")
            self.end_headers()
            return
        self.send_response(404 if self.path == "/missing" else 200)
        if self.path in ("/large", "/short"):
            self.send_header("Content-Length", "5000")
        self.end_headers()
        if self.path == "/slow":
            for _ in range(100):
                self.wfile.write(b"x")
                time.sleep(0.05)
        self.wfile.write(bytes(2000) if self.path == "/endless" else b"photo?" + b"q" * 4)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


class Server(ThreadingHTTPServer):
    """Ignores clients that disconnect."""

    hosts: list[str]

    def handle_error(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    files = certificate(tmp_path, "localhost")
    server = Server(("127.0.0.1", 0), Photos)
    server.hosts = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def limits(server: Server, tmp_path: Path) -> FetchLimits:
    """Limits that allow the test server, which is not public, and trust its certificate."""
    return FetchLimits(
        1000,
        timeout=20.0,
        port=server.server_address[1],
        authorities=str(tmp_path / "certificate.pem"),
        is_allowed=lambda address: address.is_loopback,
    )


def test_an_image_is_fetched_under_its_hosts_name(server: Server, limits: FetchLimits) -> None:
    image = fetch_image("https://localhost/a.png?size=1", limits)

    assert image.read() == b"photo?qqqq"
    assert server.hosts[0].startswith("localhost")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("moved", "302; redirects are refused"),
        ("missing", "answers 404"),
        ("large", "more than 1,000 bytes"),
        ("endless", "more than 1,000 bytes"),
    ],
)
def test_an_answer_that_is_not_an_image_is_refused(
    limits: FetchLimits, path: str, reason: str
) -> None:
    with pytest.raises(ImageError, match=reason):
        fetch_image(f"https://localhost/{path}", limits)


def test_an_answer_that_ends_early_is_refused(limits: FetchLimits) -> None:
    with pytest.raises(ImageError, match="ended early"):
        fetch_image("https://localhost/short", replace(limits, max_bytes=10_000))


def test_a_server_that_only_drips_is_left(limits: FetchLimits) -> None:
    with pytest.raises(ImageError, match=r"takes longer|does not give"):
        fetch_image("https://localhost/slow", replace(limits, timeout=0.5))


def test_an_untrusted_certificate_is_refused(limits: FetchLimits) -> None:
    with pytest.raises(ImageError, match="certificate"):
        fetch_image("https://localhost/a.png", replace(limits, authorities=None))


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x.png",
        "https://127.1/x.png",
        "https://2130706433/x.png",
        "https://0/x.png",
        "https://localhost/x.png",
        "https://169.254.169.254/latest",
        "https://10.0.0.1/x.png",
        "https://user@8.8.8.8/x.png",
        "https://8.8.8.8:22/x.png",
        "https://8.8.8.8:99999/x.png",
        "http://8.8.8.8/x.png",
        "https:///x.png",
        "https://[::1/x.png",
        "https://8.8.8.8/a b.png",
        "https://8.8.8.8/\r\nHost: x",
        "https://" + "a" * 300 + "/x.png",
        "https://8.8.8.8/" + "x" * 9000,
    ],
)
def test_no_connection_is_made_to_an_address_that_is_not_public(url: str) -> None:
    with pytest.raises(ImageError):
        fetch_image(url, FetchLimits(1000, timeout=2.0))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),  # noqa: S104
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
    ],
)
def test_an_address_is_public_also_by_what_it_wraps(address: str, public: bool) -> None:  # noqa: FBT001
    assert is_public(ipaddress.ip_address(address)) == public


def test_urls_are_read_only_where_the_operator_allows_it(tmp_path: Path) -> None:
    roots = {"photos": str(tmp_path)}

    off = root_boundary(Settings(roots=roots), "photos")
    on = root_boundary(Settings(roots=roots, remote_images=True, max_image_bytes=7), "photos")

    assert off.fetch is None
    assert on.fetch is not None
    moved = pickle.loads(pickle.dumps(on))  # noqa: S301
    assert moved.fetch.keywords == {"limits": fetch_limits(Settings(max_image_bytes=7))}
