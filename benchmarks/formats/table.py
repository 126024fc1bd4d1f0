"""The rows of the table, and how they are made of what was written and read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.formats.case import BOXES, CLASSES, REFUSED, Reading
from benchmarks.formats.compare import Compared, changed_only, compared, decided, named, truth_of
from benchmarks.formats.ours import CLEANED, Decided, clean, opened, read
from benchmarks.formats.scenes import SITUATIONS, Scene, by_split
from difficulty_service.base.errors import DifficultyError

NOTHING = "-"


@dataclass(frozen=True)
class TableRow:
    """A dataset of the table.

    Attributes:
        expected: Number of boxes, or `refused`.
        ours: What ours found: a number, or how it refused.
        tool: What the program's own reader found.
        pixels: Largest difference of ours, in pixels.
        tool_pixels: That of the program's own reader.
        clean: Whether only what was decided changed, by ours and by the program's own reader.
        differences: What is not as in the truth; each is to be explained.
    """

    name: str
    writer: str
    version: str
    form: str
    situation: str
    expected: str
    ours: str
    tool: str
    pixels: str
    tool_pixels: str
    classes: str
    clean: str
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What ours made of a dataset.

    Attributes:
        reading: None where it is refused.
        decisions: None where nothing could be cleaned.
        refusal: What was said.
    """

    reading: Reading | None
    decisions: Decided | None = None
    refusal: str = ""
    problem: str = ""


def read_ours(entry: Mapping[str, Any], folder: Path) -> Found:
    """Reads a dataset with all its splits, and cleans the first of them."""
    scenes = by_split(SITUATIONS[entry["situation"]])
    data = folder / entry["name"] / "data"
    readings, datasets = list[Reading](), []
    try:
        for split, asked in entry["splits"].items():
            dataset = opened(location_of(data, entry, split), asked)
            if entry["kind"] == REFUSED or (entry["kind"] == BOXES and dataset.scenes is None):
                names = ", ".join(dataset.class_names)
                return Found(None, problem=f"is read as images of the classes {names}")
            datasets.append((dataset, asked))
            readings.append(read(dataset, split, scenes[split]))
    except DifficultyError as error:
        return Found(None, refusal=str(error).replace(str(data), "DATA"))
    rows = [row for reading in readings for row in reading.rows]
    whole = Reading(
        rows,
        readings[0].classes,
        sum(each.images for each in readings),
        sum(each.skipped for each in readings),
        sum(each.unseen for each in readings),
    )
    try:
        dataset, asked = datasets[0]
        decisions = clean(dataset, data, asked, readings[0])
    except (DifficultyError, StopIteration, OSError) as error:
        return Found(whole, problem=f"is not cleaned: {type(error).__name__}: {error}")
    return Found(whole, decisions)


def location_of(data: Path, entry: Mapping[str, Any], split: str) -> str:
    """What is opened for a split."""
    return str(data / entry["path"].format(split=split)) if entry["path"] else str(data)


def row_of(
    entry: Mapping[str, Any], found: Found, tool: Mapping[str, Any], folder: Path
) -> TableRow:
    """The row of a dataset."""
    scenes = SITUATIONS[entry["situation"]]
    truth = truth_of(scenes, entry["kind"], numbered=entry["numbered"])
    own = tool.get("data")
    theirs = None if own is None or "problem" in own else compared(truth, _reading(own), scenes)
    ours = None
    if found.reading is not None:
        ours = compared(truth, found.reading, scenes)
    differences = [
        *([f"not written: {entry['problem']}"] if entry["problem"] else []),
        *_of_ours(entry, found, ours),
        *([f"tool {each}" for each in theirs.differences] if theirs else []),
        *([f"tool fails: {own['problem']}"] if own is not None and "problem" in own else []),
    ]
    cleaned, problems = _cleaned(entry, found, tool, folder)
    return TableRow(
        name=entry["name"],
        writer=entry["writer"],
        version=entry["version"],
        form=entry["form"],
        situation=entry["situation"],
        expected="refused" if entry["kind"] == REFUSED else str(len(truth)),
        ours=_outcome(entry, found, ours),
        tool=NOTHING if own is None else (str(theirs.boxes) if theirs else "fails"),
        pixels=_pixels(ours, entry),
        tool_pixels=_pixels(theirs, entry),
        classes=NOTHING if ours is None else ("yes" if ours.classes else "no"),
        clean=cleaned,
        differences=(*differences, *problems),
    )


def _reading(content: Mapping[str, Any]) -> Reading:
    rows = [(split, name, label, tuple(sides)) for split, name, label, sides in content["rows"]]
    return Reading(rows, content["classes"], content["images"])


def _of_ours(entry: Mapping[str, Any], found: Found, ours: Compared | None) -> list[str]:
    if found.problem:
        return [f"ours {found.problem}", *_differences(ours)]
    if found.reading is None:
        if entry["kind"] != REFUSED:
            return [f"ours refuses: {found.refusal}"]
        return [] if _is_named(entry, found) else [f"ours does not name it: {found.refusal}"]
    unseen = found.reading.unseen
    more = [f"ours {unseen} crops do not show the object"] if unseen else []
    return [*_differences(ours), *more]


def _differences(ours: Compared | None) -> list[str]:
    return [f"ours {each}" for each in ours.differences] if ours else []


def _is_named(entry: Mapping[str, Any], found: Found) -> bool:
    return entry["layout"] in found.refusal


def _outcome(entry: Mapping[str, Any], found: Found, ours: Compared | None) -> str:
    if found.reading is None:
        if found.problem:
            return "read as classes"
        return "refused by name" if entry["layout"] and _is_named(entry, found) else "refused"
    skipped = found.reading.skipped
    number = str(ours.boxes if ours else len(found.reading.rows))
    return f"{number} ({skipped} skipped)" if skipped else number


def _pixels(which: Compared | None, entry: Mapping[str, Any]) -> str:
    return NOTHING if which is None or entry["kind"] != "boxes" else f"{which.pixels:.3f}"


def _cleaned(
    entry: Mapping[str, Any], found: Found, tool: Mapping[str, Any], folder: Path
) -> tuple[str, list[str]]:
    """Whether only what was decided has changed, and what is wrong with it."""
    if found.decisions is None or found.reading is None:
        return NOTHING if found.reading is None else "no", []
    split, asked = next(iter(entry["splits"].items()))
    scenes = by_split(SITUATIONS[entry["situation"]])[split]
    try:
        again = _again(entry, folder, split, asked, scenes)
    except DifficultyError as error:
        return "no", [f"cleaned is refused: {error}"]
    before = [row for row in found.reading.rows if row[0] == split]
    problems = []
    if not changed_only(decided(before, found.decisions), again.rows):
        problems.append("cleaned has other changes")
    if entry["kind"] == BOXES and not _tool_agrees(
        tool, found.decisions, SITUATIONS[entry["situation"]]
    ):
        problems.append("tool sees other changes in what is cleaned")
    return ("no" if problems else "yes"), problems


def _again(
    entry: Mapping[str, Any], folder: Path, split: str, asked: str | None, scenes: Sequence[Scene]
) -> Reading:
    cleaned = folder / entry["name"] / "cleaned"
    if entry["kind"] == CLASSES:
        return read(opened(str(cleaned / CLEANED), None), split, scenes)
    return read(opened(location_of(cleaned, entry, split), asked), split, scenes)


def _tool_agrees(tool: Mapping[str, Any], decisions: Decided, scenes: Sequence[Scene]) -> bool:
    """Whether the program's own reader sees the two decisions, and no other change."""
    before, after = tool.get("data"), tool.get("cleaned")
    if before is None or after is None or "problem" in before:
        return True
    if "problem" in after:
        return False
    rows = [named(_reading(each).rows, scenes) for each in (before, after)]
    return changed_only(decided(rows[0], decisions), rows[1])


def load(folder: Path, name: str) -> Any:  # noqa: ANN401
    """What the programs' side left in a file."""
    return json.loads((folder / name).read_text())
