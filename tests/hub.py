"""A hub of weights on this machine, which the real client of the hub downloads from."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "c" * 40


@dataclass
class Hub:
    """What the hub has, and how it answers.

    Attributes:
        files: Contents by path, such as `owner/name/model.safetensors`.
        announced: Size in bytes that it announces for all files; None for the true one.
        digest: SHA-256 that it announces for all files; None for the true one.
        has_xet: Whether it offers all files by Xet, too, which it cannot keep.
        breaks: Number of answers that it breaks off in their middle.
        gate: Every answer with content stops in its middle until this is set.
        downloads: Paths of the files that were asked for, once for each answer with content.
    """

    files: dict[str, bytes]
    announced: int | None = None
    digest: str | None = None
    has_xet: bool = False
    breaks: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    downloads: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Answers requests within the context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._begin()

        def do_GET(self) -> None:
            if self.path.startswith("/api/models/"):
                self._describe()
                return
            content = self._begin()
            if content is None:
                return
            hub.downloads.append(self.path)
            middle = len(content) // 2
            self.wfile.write(content[:middle])
            self.wfile.flush()
            hub.gate.wait(60)
            if hub.breaks > 0:
                hub.breaks -= 1
                self.close_connection = True
                return
            self.wfile.write(content[middle:])

        def _describe(self) -> None:
            """Answers what the repository is, or which files it has."""
            owner, name, *rest = self.path.removeprefix("/api/models/").partition("?")[0].split("/")
            prefix = f"{owner}/{name}/"
            files = [
                {"type": "file", "path": path.removeprefix(prefix), "size": len(each), "oid": "0"}
                for path, each in hub.files.items()
                if path.startswith(prefix)
            ]
            described = files if rest[0] == "tree" else {"id": prefix.strip("/"), "sha": COMMIT}
            body = json.dumps(described).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _begin(self) -> bytes | None:
            repository, _, file = self.path.strip("/").partition("/resolve/")
            content = hub.files.get(f"{repository}/{file.partition('/')[2]}")
            if content is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            digest = hub.digest or hashlib.sha256(content).hexdigest()
            size = len(content) if hub.announced is None else hub.announced
            start = 0
            if (wanted := self.headers.get("Range")) is not None:
                start = int(wanted.removeprefix("bytes=").partition("-")[0])
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{size}")
            else:
                self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{digest}"')
            self.send_header("X-Linked-Size", str(size))
            if hub.has_xet:
                self.send_header("X-Xet-Hash", digest)
                self.send_header("X-Xet-Refresh-Route", f"{hub.url}/xet")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            return content[start:]

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


def use_hub(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this process download from the hub, into a cache of its own."""
    constants = "huggingface_hub.constants"
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(f"{constants}.ENDPOINT", hub.url)
    monkeypatch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(f"{constants}.DOWNLOAD_CHUNK_SIZE", 1000)
