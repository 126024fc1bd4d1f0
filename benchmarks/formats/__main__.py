"""Reads what other programs write, and compares it with what they were given.

    python -m benchmarks.formats [FOLDER]

Installs the programs into `.formats/` (or FOLDER), with versions of their own, lets them write the
same few scenes in their formats, and reads, cleans and reads each again: with ours, and with the
program's own reader. Writes `docs/formats.csv` and the parts of `docs/formats.md` that are made of
it. The exit code is 1 where a difference has no explanation in `explained.py`, or an explanation
has no difference.
"""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.formats.environments import ROOT, environment
from benchmarks.formats.explained import explain, stale
from benchmarks.formats.page import TABLE, write_page
from benchmarks.formats.table import TableRow, load, read_ours, row_of

HEADER = (
    *("writer", "version", "format", "situation", "boxes", "ours", "its own reader"),
    *("ours: pixels", "its own: pixels", "classes equal", "cleaned", "difference"),
)


def rows_in(python: Path, folder: Path) -> list[TableRow]:
    """Writes, reads and cleans every dataset below a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (folder / "log.txt").open("w") as log:
        programs = (python, "-m", "benchmarks.formats.writers")
        _logged(log, *programs, "write", folder)
        entries = load(folder, "written.json")
        found = {
            entry["name"]: read_ours(entry, folder) for entry in entries if not entry["problem"]
        }
        _logged(log, *programs, "read", folder)
    theirs = load(folder, "read.json")
    return [
        row_of(entry, found[entry["name"]], theirs.get(entry["name"], {}), folder)
        for entry in entries
        if entry["name"] in found
    ]


def _logged(log: object, *words: object) -> None:
    command = list(map(str, words))
    # One program writes splits in the order of a set, and over each other.
    fixed = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run(command, check=True, env=fixed, cwd=ROOT, stdout=log, stderr=log)  # type: ignore[call-overload]  # noqa: S603


def write_table(path: Path, rows: list[TableRow]) -> None:
    """Writes the table, with a sentence for each difference."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for row in rows:
            sentences = list(dict.fromkeys(explain(row, each) or each for each in row.differences))
            writer.writerow(
                (
                    *(row.writer, row.version, row.form, row.situation, row.expected, row.ours),
                    *(row.tool, row.pixels, row.tool_pixels, row.classes, row.clean),
                    " ".join(sentences),
                )
            )


def main() -> int:
    """Runs all; the number of differences without an explanation decides the exit code."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".formats").resolve()
    rows = rows_in(environment(folder), folder / "written")
    write_table(TABLE, rows)
    write_page()
    unexplained = [
        f"{row.name}: {each}" for row in rows for each in row.differences if not explain(row, each)
    ]
    unused = stale(rows)
    for each in unexplained:
        print("unexplained:", each)
    for sentence in unused:
        print("explains nothing any more:", sentence)
    differing = sum(bool(row.differences) for row in rows)
    writers = len({row.writer for row in rows})
    print(
        f"{len(rows)} datasets of {writers} writers: {len(rows) - differing} as in the truth, "
        f"{differing} with differences, {len(unexplained)} of these unexplained"
    )
    return int(bool(unexplained or unused))


if __name__ == "__main__":
    sys.exit(main())
