"""Hugging Face's `datasets`: scores and images, with decisions in columns that are written."""

from collections.abc import Iterator
from pathlib import Path

from datasets import load_dataset, load_from_disk

from benchmarks.formats.tools.trip import NONE, Trip, decisions_of

PACKAGE = "datasets"


def trips(folder: Path, own: Path) -> Iterator[Trip]:
    """Opens both exports, and writes ids and decisions as Parquet and CSV."""
    exports, decisions = folder / "exports", decisions_of(folder)
    opened = {
        "huggingface": load_from_disk(str(exports / "huggingface")),
        "hub": load_dataset(str(exports / "hub"), split="train", cache_dir=str(own / "cache")),
    }
    for export, form in (("huggingface", "Parquet"), ("hub", "CSV")):
        found = opened[export]
        images = sum(image.size == (32, 24) for image in found["image"])
        decided = [decisions[each] for each in found["sample_id"]]
        marks = [None if each.kind == NONE else each.kind for each in decided]
        written = found.select_columns(["sample_id"]).add_column("mark", marks)
        written = written.add_column("label", [each.label for each in decided])
        path = own / f"marks.{form.lower()}"
        (written.to_parquet if form == "Parquet" else written.to_csv)(str(path))
        yield Trip(export, form, len(found), images, str(path.relative_to(folder)))
