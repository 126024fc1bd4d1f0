"""The service whose pages are looked at."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

TIMEOUT = 120.0


@dataclass(frozen=True)
class Explorer:
    """A running service."""

    url: str  # address that it listens on
    secret: str  # a key with the scope write
    read_only: str  # a key with the scope read-all
    job: str  # id of a finished job
    scores: list[dict[str, Any]]  # rows of its score file
    folder: Path  # folder with the images that jobs may read

    def client(self) -> httpx2.Client:
        """A client with the key."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=TIMEOUT)

    def score(self, path: str) -> str:
        """Id of a new job about a folder or file below the root, once it has succeeded."""
        with self.client() as client:
            return scored(client, path)


def scored(client: httpx2.Client, path: str) -> str:
    """Id of a new job about a folder or file below the root, once it has succeeded."""
    body = {"dataset": {"root": "photos", "path": path}}
    job = client.post("/v1/jobs", json=body).raise_for_status().json()
    client.get(job["links"]["events"])  # until it has ended
    job = client.get(job["links"]["self"]).raise_for_status().json()
    assert job["state"] == "succeeded", job["error"]
    return str(job["id"])
