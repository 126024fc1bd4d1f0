"""`make audit` fails where a pinned version has a known hole, with a network and without one."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent
NOWHERE = "http://127.0.0.1:9"  # the port of a service that nobody runs
STORED = json.loads((PROJECT / ".ci" / "advisories.json").read_text())


def audit(pins: Path, osv: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, ".ci/audit.py", "--pins", str(pins)]
    return subprocess.run(  # noqa: S603 - fixed arguments
        command, cwd=PROJECT, env={"OSV_URL": osv}, capture_output=True, text=True, check=False
    )


@contextmanager
def osv(advisories: list[dict[str, Any]]) -> Iterator[str]:
    """A server that answers as OSV does; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = body["package"]["name"]
            found = [a for a in advisories if a["affected"][0]["package"]["name"] == name]
            content = json.dumps({"vulns": found} if found else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_no_pinned_version_has_a_hole_that_is_stored() -> None:
    done = audit(PROJECT / "constraints.txt", NOWHERE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"by advisories.json of {STORED['as_of']}, since" in done.stdout


@pytest.mark.parametrize(
    ("pin", "hole"),
    [
        ("Starlette==0.48.0", "GHSA-7f5h-v6xp-fcq8"),
        ("starlette==0.39.0", "GHSA-7f5h-v6xp-fcq8"),
        ("starlette==0.49.1", None),
        ("h11==0.15.0", "CVE-2025-43859"),
        ("h11==0.16.0", None),
        ("Pillow==11.2.1  # planted", "CVE-2025-48379"),
        ("pillow==11.3.0", None),
        ("pillow==10.0.0", "PYSEC-2023-175"),
    ],
)
def test_a_planted_version_fails_exactly_where_an_advisory_covers_it(
    tmp_path: Path, pin: str, hole: str | None
) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text(f"# pins\n{pin}\nabsl-py==2.5.1\n")

    done = audit(pins, NOWHERE)

    assert done.returncode == (0 if hole is None else 1), done.stdout + done.stderr
    assert (hole or "0 known holes") in done.stdout


def test_what_osv_says_counts_rather_than_what_is_stored(tmp_path: Path) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text("starlette==0.48.0\nexample==1.0\n")
    package = {"ecosystem": "PyPI", "name": "example"}
    events = [{"introduced": "0"}, {"last_affected": "1.0"}]
    ranges = [{"type": "ECOSYSTEM", "events": events}]
    new = {"id": "NEW-1", "affected": [{"package": package, "ranges": ranges}]}
    withdrawn = new | {"id": "OLD-1", "withdrawn": "2026-01-01T00:00:00Z"}

    with osv([new, withdrawn]) as address:
        done = audit(pins, address)

    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "example 1.0: NEW-1",
        f"1 known holes in 2 pinned packages, by {address} today",
    ]
