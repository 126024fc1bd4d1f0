"""Opens exports with the programs that they are for, and reads what people decide there.

    python -m benchmarks.formats.round_trips [FOLDER [NUMBER]]

Installs each program into an environment of its own below `.formats/` (or FOLDER). Writes
`docs/round_trips.csv` and the part of `docs/formats.md` that is made of it, unless another NUMBER
of decisions of each kind is asked for. The exit code is 1 where a sample, an image or a decision is
lost or another one.
"""

import csv
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.formats.environments import ROOT, WRITERS, environment, run_words
from benchmarks.formats.exported import OF_A_KIND, write_exports
from benchmarks.formats.page import TRIPS, write_page
from benchmarks.formats.tools.trip import KINDS, NONE, RELABEL, ToolDecision, decisions_of
from difficulty_service.marks.files import read_marks
from difficulty_service.marks.record import MarkedSample

HEADER = ("program", "version", "export", "form", "samples", "images", *KINDS[:3], "not right")


@dataclass(frozen=True)
class Program:
    """A program that opens exports.

    Attributes:
        module: Its module in `benchmarks.formats.tools`.
        environment: Folder of its environment.
    """

    module: str
    environment: str = WRITERS


PROGRAMS = (
    Program("of_label_studio", "label-studio"),
    Program("of_datumaro"),
    Program("of_fiftyone", "fiftyone"),
    Program("of_datasets"),
    Program("of_spotlight", "spotlight"),
    Program("of_embedding_atlas", "embedding-atlas"),
)


def counted(
    decisions: Mapping[str, ToolDecision], marks: Mapping[str, MarkedSample]
) -> tuple[Counter[str], int]:
    """How many decisions of each kind came back as they were, and how many did not."""
    found, wrong = Counter[str](), len(marks.keys() - decisions.keys())
    for sample_id, decision in decisions.items():
        mark = marks.get(sample_id)
        kind = NONE if mark is None else str(mark.mark)
        same = kind == decision.kind and (
            mark is None or kind != RELABEL or mark.label == decision.label
        )
        found[kind] += same
        wrong += not same
    return found, wrong


def rows_of(folder: Path, program: Program) -> Iterator[dict[str, object]]:
    """The rows of a program, of what it left in a folder."""
    found = json.loads((folder / program.module / "trips.json").read_text("utf-8"))
    decisions = decisions_of(folder)
    for trip in found["trips"]:
        yield row_of(trip, program.module.removeprefix("of_"), found["version"], decisions, folder)


def row_of(
    trip: Mapping[str, Any],
    program: str,
    version: str,
    decisions: Mapping[str, ToolDecision],
    folder: Path,
) -> dict[str, object]:
    """The row of an export in a program."""
    row = {"program": program.replace("_", "-"), "version": version, "export": trip["export"]}
    row |= {"form": trip["form"], "samples": trip["samples"], "images": trip["images"]}
    lost = sum(abs(len(decisions) - trip[name]) for name in ("samples", "images"))
    if trip["marks"] is None:
        return row | {"not right": lost}
    marks = read_marks(folder / trip["marks"], decisions.keys()).samples
    carried = {
        sample_id: each if each.kind in trip["carried"] else ToolDecision(NONE, each.label)
        for sample_id, each in decisions.items()
    }
    found, wrong = counted(carried, marks)
    kinds = {kind: found[kind] for kind in KINDS[:3] if kind in trip["carried"]}
    return row | kinds | {"not right": lost + wrong}


def write_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes the rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    """Runs all; the number of what is not right decides the exit code."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".formats").resolve()
    folder = place / "trips"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    number = int(sys.argv[2]) if len(sys.argv) > 2 else OF_A_KIND  # noqa: PLR2004
    write_exports(folder, number)
    rows = list[dict[str, object]]()
    for program in PROGRAMS:
        python = environment(place, program.environment)
        run_words(python, "-m", "benchmarks.formats.tools", program.module, folder)
        rows += rows_of(folder, program)
    if number == OF_A_KIND:
        write_table(TRIPS, rows)
        write_page()
    wrong = sum(int(str(row["not right"])) for row in rows)
    print(f"{len(rows)} round trips through {len(PROGRAMS)} programs: {wrong} things are not right")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
