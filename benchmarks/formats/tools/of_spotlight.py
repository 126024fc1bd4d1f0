"""Spotlight: the exported dataset of Hugging Face, as its server hands it to a browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import requests
from datasets import load_from_disk

from benchmarks.formats.tools.server import TIMEOUT
from benchmarks.formats.tools.trip import Trip

PACKAGE, EXPORT = "renumics-spotlight", "huggingface"
CLASSES = {"label", "nearest_label", "suggested_label", "first_label"}


def trips(folder: Path, own: Path) -> Iterator[Trip]:
    """Shows the dataset, and asks for its columns and images."""
    os.environ["HOME"] = str(own)
    from renumics import spotlight  # keeps settings at home

    viewer = spotlight.show(
        load_from_disk(str(folder / "exports" / EXPORT)), no_browser=True, wait=False, port="auto"
    )
    try:
        address = f"http://127.0.0.1:{viewer.port}/api/table/"
        table = requests.get(address, timeout=TIMEOUT).json()
        columns = {each["name"]: each for each in table["columns"]}
        kinds = {name: columns[name]["dtype"]["name"] for name in CLASSES}
        if {*kinds.values()} != {"Category"}:
            raise ValueError(f"classes are {kinds}")
        samples = len(columns["sample_id"]["values"])
        seen = {"generation_id": table["generation_id"]}
        images = 0
        for row in range(samples):
            images += requests.get(f"{address}image/{row}", params=seen, timeout=TIMEOUT).ok
        yield Trip(EXPORT, "datasets.Dataset", samples, images)
    finally:
        viewer.close()
