"""Reads images of other fields as other programs write them, beside the values that they wrote.

    python -m benchmarks.formats.fields [FOLDER]

Installs the programs into an environment below `.formats/` (or FOLDER). Writes `docs/fields.csv`
and the part of `docs/formats.md` that is made of it. The exit code is 1 where a level of an image
is not the one of the formula.
"""

import csv
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.formats.environments import ROOT, environment, run_words
from benchmarks.formats.page import FIELDS, write_page
from difficulty_service.base.errors import ImageError
from difficulty_service.images.header import decode_to_pil, open_header
from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import Pixels

HEADER = ("program", "version", "image", "levels apart")
_SCRIPT = re.compile(r"^```py\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def expected(values: NDArray[Any], entry: Mapping[str, Any]) -> NDArray[np.float64]:
    """The levels of an image by the formula. Shape (height, width, 3)."""
    number = values.shape[2]
    bands = entry["bands"] or ((1, 2, 3) if number == 3 else (1,))  # noqa: PLR2004
    shown = values[..., [band - 1 for band in bands]].astype(np.float64)
    shown = np.repeat(shown, 3 // len(bands), axis=2)
    shares = (shown - entry["low"]) / (entry["high"] - entry["low"])
    levels = 255 * shares.clip(0, 1)
    levels = 255 - levels if entry["inverted"] else levels
    return levels if entry["missing"] is None else np.where(shown == entry["missing"], 0, levels)


def rows_of(folder: Path) -> Iterator[dict[str, object]]:
    """A row for each image."""
    for entry in json.loads((folder / "written.json").read_text()):
        path = folder / entry["image"]
        values = np.load(path.with_suffix(".npy"))
        row = {"program": entry["program"], "version": entry["version"], "image": entry["kind"]}
        pixels = Pixels(
            PixelRange(entry["low"], entry["high"]), tuple(entry["bands"]), entry["page"]
        )
        try:
            seen = np.asarray(decode_to_pil(open_header(path.read_bytes()), pixels))
        except ImageError as error:
            yield {**row, "levels apart": str(error)}
            continue
        # A half may be rounded to either side.
        apart = np.abs(seen - expected(values, entry)).max() - 0.5
        yield {**row, "levels apart": max(0, int(np.ceil(apart - 1e-3)))}


def main() -> int:
    """Writes and reads all; the number of differences decides the exit code."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".formats").resolve()
    folder = place / "fields-written"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = _SCRIPT.search((ROOT / "docs" / "fields.md").read_text())
    script = folder / "dicom.py"
    script.write_text(found[1] if found else "")
    run_words(
        environment(place, "fields"), "-m", "benchmarks.formats.tools.of_fields", folder, script
    )
    rows = list(rows_of(folder))
    with FIELDS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_page()
    wrong = [row for row in rows if row["levels apart"] != 0]
    for row in wrong:
        print(*row.values())
    print(f"{len(rows)} images of other fields: {len(wrong)} have other levels")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
