"""Opens exports with one program, in an environment that has it.

    python -m benchmarks.formats.tools MODULE FOLDER

`FOLDER` has `exports/` and `decisions.json`, as `benchmarks/formats/exported.py` writes them. What
the program found is in `FOLDER/MODULE/trips.json`.
"""

import json
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    """Does what the arguments say."""
    name, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    module = import_module(f"benchmarks.formats.tools.{name}")
    own = folder / name
    own.mkdir()
    trips = [asdict(each) for each in module.trips(folder, own)]
    found = {"version": version(module.PACKAGE), "trips": trips}
    (own / "trips.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    main()
