"""Time, core-seconds and memory of the server for each page of the explorer.

    python -m benchmarks.explorer [--rows 1000000]

Random scores of a thousand classes, and features beside them, are explored by `difficulty explore`.
Each page is asked for once and then five times more, once the map is made.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import torch

from benchmarks.machine import machine
from benchmarks.pages import write_random_scores
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import create_store
from difficulty_service.scores.file import read_scores

PAGES = (
    "",
    "/images",
    "/images?label=class+3&sort=hardest",
    "/images?pmin=50&pmax=60&margin=0",
    "/images?q=0012345",
    "/images/5",
    "/classes",
    "/pairs",
    "/pairs/3/4",
    "/images/6",  # the vectors are open now
    "/map",
    "/map/points",
    "/images?area=9000_9000_50000_9000_30000_60000",
    "/errors",
)
DIM, SHARD = 64, 10_000
ADDRESS = re.compile(r"http://\S+")
ASKS_FOR_MAP, AWAITED = {"hx-request": "true"}, 204
REPEATS = 5


def write_random_features(folder: Path, scores: Path) -> None:
    """Features of the scored images around a random mean of each class."""
    table = read_scores(scores, ("sample_id", "label")).table
    ids = table["sample_id"].to_pylist()
    labels = torch.from_numpy(table["label"].to_numpy().astype("int64"))
    num_classes = int(labels.max()) + 1
    generator = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(num_classes, DIM, generator=generator)
    description = {
        "class_names": [f"class {label}" for label in range(num_classes)],
        "num_shards": -(-len(ids) // SHARD),
        "augment_runs": 0,
        "shard_size": SHARD,
        "num_samples": len(ids),
        "dataset": "random",
        "fingerprint": "0",
    }
    store = create_store(folder, FeatureDescription.of(description))
    for shard in range(store.num_shards):
        rows = slice(shard * SHARD, (shard + 1) * SHARD)
        noise = torch.randn(len(labels[rows]), DIM, generator=generator)
        features = means[labels[rows]] + noise
        store.write_shard(
            shard, ShardTable(ids[rows], labels[rows], torch.zeros(len(noise)), features), []
        )


def core_seconds(process: int) -> float:
    """Time that the threads of a process have spent computing."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_megabytes(process: int) -> float:
    """Memory of a process without mapped files."""
    status = Path(f"/proc/{process}/status").read_text()
    (kilobytes,) = re.findall(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024 / 1e6


def measure(client: httpx2.Client, address: str, process: int, repeats: int) -> str:
    """Mean time and core time of the answers to requests of one page."""
    start, start_cpu = time.perf_counter(), core_seconds(process)
    for _ in range(repeats):
        client.get(address).raise_for_status()
    seconds = (time.perf_counter() - start) / repeats
    cpu = (core_seconds(process) - start_cpu) / repeats
    return f"{1000 * seconds:6.0f} ms, {1000 * cpu:6.0f} core-ms"


@contextmanager
def explored(scores: Path) -> Iterator[tuple[str, int, httpx2.Client]]:
    """Runs the server; gives the address of its first page, its process and a client."""
    command = [sys.executable, "-m", "difficulty_service", "explore", str(scores)]
    output = scores.with_name("output")
    start = time.perf_counter()
    with output.open("w") as file:
        server = subprocess.Popen([*command, "--no-browser"], stdout=file)  # noqa: S603
    try:
        while (printed := ADDRESS.search(output.read_text())) is None:
            time.sleep(0.1)
        address = printed[0]
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=50), timeout=120) as client:
            client.get(address).raise_for_status()
            print(f"\nthe first page is there after {time.perf_counter() - start:.1f} s")
            while client.get(f"{address}/map", headers=ASKS_FOR_MAP).status_code == AWAITED:
                time.sleep(0.5)
            print(f"the map is there after {time.perf_counter() - start:.1f} s")
            yield address, server.pid, client
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Measures every page, and the summary alone after a restart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    print(f"{machine()}; {rows:,} random scores")
    with tempfile.TemporaryDirectory() as place:
        scores = Path(place, "scores.parquet")
        write_random_scores(scores, rows)
        write_random_features(scores.with_suffix(".features"), scores)
        for pages in (PAGES, PAGES[:1]):
            with explored(scores) as (address, process, client):
                before = own_megabytes(process)
                for page in pages:
                    first = measure(client, address + page, process, 1)
                    later = measure(client, address + page, process, REPEATS)
                    print(f"{page or 'summary':36} first {first}; later {later}")
                after = own_megabytes(process)
            print(
                f"memory beside mapped files: {after:.0f} MB, {after - before:+.0f} MB since the "
                "page of jobs"
            )


if __name__ == "__main__":
    main()
