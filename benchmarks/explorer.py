"""Time, core-seconds and memory of the server for each page of the explorer.

    python benchmarks/explorer.py [--rows 1000000]

Random scores of a thousand classes are explored by `difficulty explore`. Each page is asked for
once and then five times more; the first one opens the scores. The map is of random positions.
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
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from machine import machine
from pages import write_random_scores

from difficulty_service.reporting.map import MAX_POINTS

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
    "/map",
    "/errors",
)
REPEATS = 5


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
        while not (printed := output.read_text()).endswith("\n"):
            time.sleep(0.1)
        address = printed.split()[1]
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=50), timeout=120) as client:
            client.get(address.partition("/jobs")[0]).raise_for_status()
            print(f"\nthe server is ready after {time.perf_counter() - start:.1f} s")
            yield address, server.pid, client
    finally:
        server.terminate()
        server.wait()


def write_map(scores: Path, rows: int) -> None:
    """Gives the explored job a map, which needs features that random scores do not have."""
    chosen = range(0, rows, -(-rows // MAX_POINTS))
    x, y = np.random.default_rng(0).random((2, len(chosen)), np.float32)
    placed = pa.table({"sample_id": [f"{row:08d}.jpg" for row in chosen], "x": x, "y": y})
    (published,) = scores.with_suffix(".explorer").glob("artifacts/jobs/*/a1")
    pq.write_table(placed, published / "map.parquet", compression="zstd")


def main() -> None:
    """Measures every page, and the summary alone after a restart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    print(f"{machine()}; {rows:,} random scores")
    with tempfile.TemporaryDirectory() as place:
        scores = Path(place, "scores.parquet")
        write_random_scores(scores, rows)
        for pages in (PAGES, PAGES[:1]):
            with explored(scores) as (address, process, client):
                write_map(scores, rows)
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
