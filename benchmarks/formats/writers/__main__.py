"""Writes every dataset, or reads each again with the program that wrote it.

    python -m benchmarks.formats.writers write FOLDER
    python -m benchmarks.formats.writers read FOLDER

Runs in the environment of the programs. What it did is in `written.json` and `read.json`.
"""

import contextlib
import io
import json
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.formats.case import Case
from benchmarks.formats.scenes import SITUATIONS

WRITERS = {
    "datumaro": "of_datumaro",
    "supervision": "of_supervision",
    "ultralytics": "of_ultralytics",
    "label-studio-sdk": "of_label_studio",
    "labelformat": "of_labelformat",
    "globox": "of_globox",
    "datasets": "of_datasets",
    "webdataset": "of_webdataset",
    "pycocotools": "of_pycocotools",
}
"""The module of each program, by the name of its package."""


def cases() -> Iterator[Case]:
    """All datasets."""
    for module in WRITERS.values():
        yield from import_module(f"benchmarks.formats.writers.{module}").CASES


def write(folder: Path) -> list[dict[str, Any]]:
    """Writes each dataset into FOLDER/NAME/data."""
    return [_written(case, folder) for case in cases()]


def _written(case: Case, folder: Path) -> dict[str, Any]:
    data = folder / case.name / "data"
    data.mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()):
        problem = _problem_of(case, data)
    return {
        "name": case.name,
        "writer": case.writer,
        "version": version(case.writer),
        "form": case.form,
        "situation": case.situation,
        "kind": case.kind,
        "path": case.path,
        "splits": case.splits,
        "layout": case.layout,
        "numbered": case.numbered,
        "problem": problem,
    }


def _problem_of(case: Case, data: Path) -> str:
    try:
        case.write(data, SITUATIONS[case.situation])
    except Exception as error:  # noqa: BLE001 - what any program raises is a line of the table
        traceback.print_exc()
        return _sentence(error)
    return ""


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Reads each dataset, and what ours made of it, with the program that wrote it."""
    found: dict[str, dict[str, Any]] = {}
    for case in cases():
        if case.read is None:
            continue
        scenes = SITUATIONS[case.situation]
        for name in ("data", "cleaned"):
            place = folder / case.name / name
            if not place.is_dir():
                continue
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    reading = asdict(case.read(place, scenes))
            except Exception as error:  # noqa: BLE001
                traceback.print_exc()
                reading = {"problem": _sentence(error)}
            found.setdefault(case.name, {})[name] = reading
    return found


def _sentence(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def main() -> None:
    """Does what the first argument says, in the folder that the second one names."""
    task, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    found = write(folder) if task == "write" else read(folder)
    name = "written.json" if task == "write" else "read.json"
    (folder / name).write_text(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
