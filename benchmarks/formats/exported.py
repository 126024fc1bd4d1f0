"""A small scored dataset, its exports, and what a person decides about its samples.

Its ids and classes are hard to carry: they have blanks, quotes, commas, leading zeros and what
addresses and formulas begin with. Some images are two samples, with two labels.
"""

import csv
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

import difficulty_service as ds
from benchmarks.formats.tools.trip import KINDS, RELABEL
from difficulty_service.cleaning.exports import EXPORTS, export_file, export_folder
from difficulty_service.pages.stored_images import open_images
from difficulty_service.scores.file import ScoreFile, read_scores

CLASSES = ("007", "apple, red", 'größe "L"')
COLOURS = ((30, 60, 200), (220, 30, 30), (30, 180, 40))

OF_A_KIND = 30
"""Number of samples about which each of `KINDS` is decided."""

COPIES = 12
"""One in so many samples is of the file of another one."""

FILES = {"csv": "scores.csv", "jsonl": "scores.jsonl", "cleanlab": "issues.csv"}
FILES |= {"embedding-atlas": "atlas.parquet"}
"""Names of the exports that are files; others are folders of the name of their format."""


def write_dataset(folder: Path, num_samples: int) -> Path:
    """Writes images, and a table with the id and the label of each sample."""
    generator = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    num_images = num_samples - num_samples // COPIES
    for number in range(num_images):
        noise = generator.normal(0, 40, (24, 32, 3))
        pixels = (np.array(COLOURS[number % 3]) + noise).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / _name_of(number))
    path = folder / "samples.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "image", "label"))
        for row in range(num_samples):
            number, again = row % num_images, row // num_images
            writer.writerow((_id_of(row), _name_of(number), CLASSES[(number + again) % 3]))
    return path


def _name_of(number: int) -> str:
    return f"images/photo {number}, ü#%.png"


def _id_of(row: int) -> str:
    forms = (f"{row:05d}", f"day 1/ü {row}, #%20.png", f'=say("{row}")', f"'{row}'", f"a+b&c/{row}")
    return forms[row % len(forms)]


def write_exports(folder: Path, of_a_kind: int = OF_A_KIND) -> None:
    """Scores the dataset, and writes `exports/`, `instructions.json` and `decisions.json`."""
    path = folder / "scores.parquet"
    table = write_dataset(folder, of_a_kind * len(KINDS))
    with warnings.catch_warnings(action="ignore"):  # that copies have other labels
        ds.score_dataset(str(table), id_column="id", backbone="builtin", out=path, progress=False)
    scores = read_scores(path)
    images = open_images(scores.provenance, scores.table["sample_id"].to_pylist())
    exports = folder / "exports"
    exports.mkdir()
    said = {}
    for name, export in EXPORTS.items():
        if export.is_folder:
            exported = export_folder(name, scores, images, exports / name)
        else:
            source = images if export.has_images else None
            exported = export_file(name, scores, exports / FILES[name], source)
        said[name] = [*exported.instructions]
    _write_json(folder / "instructions.json", said)
    _write_json(folder / "decisions.json", dict(decided(scores)))


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")


def decided(scores: ScoreFile) -> Iterator[tuple[str, tuple[str, str]]]:
    """The id of each sample, and what is decided about it: its kind, and the class that it gets."""
    ids = scores.table["sample_id"].to_pylist()
    labels = scores.table["label_name"].cast("string").to_pylist()
    for row, (sample_id, label) in enumerate(zip(ids, labels, strict=True)):
        kind = KINDS[row % len(KINDS)]
        other = CLASSES[(CLASSES.index(label) + 1 + row // len(KINDS) % 2) % 3]
        yield sample_id, (kind, other if kind == RELABEL else label)
