"""Embedding Atlas: the exported table, opened by the command that the export prints."""

import io
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import requests

from benchmarks.formats.tools.server import TIMEOUT, answering, free_port, stopping
from benchmarks.formats.tools.trip import Trip

PACKAGE, EXPORT = "embedding-atlas", "embedding-atlas"


def trips(folder: Path, own: Path) -> Iterator[Trip]:
    """Starts the server, and asks it for the table."""
    (said,) = json.loads((folder / "instructions.json").read_text("utf-8"))[EXPORT]
    name, *words = shlex.split(said.partition(": ")[2])
    port = free_port()
    command = [str(Path(sys.executable).with_name(name)), *words, "--port", str(port)]
    with stopping(command, own) as process:
        address = f"http://127.0.0.1:{port}/data"
        about = answering(f"{address}/metadata.json", process).json()["props"]["data"]
        content = requests.get(f"{address}/dataset.parquet", timeout=TIMEOUT).content
        table = pq.read_table(io.BytesIO(content))
        if about["projection"] != {"x": "projection_x", "y": "projection_y"}:
            raise ValueError(f"the map is {about}")
        images = [each is not None for each in table[about["image"]].to_pylist()]
        yield Trip(EXPORT, "Parquet", len(table), sum(images))
