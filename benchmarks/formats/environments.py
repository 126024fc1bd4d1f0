"""Programs, installed with versions of their own into environments that ours does not see."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

WRITERS = "environment"
"""Name of the environment of the programs that write datasets."""


def environment(place: Path, name: str = WRITERS) -> Path:
    """The interpreter of programs, which are installed below a folder where they are not."""
    folder = place / name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    of_name = "" if name == WRITERS else f"-{name}"
    wanted, alone = HERE / f"requirements{of_name}.txt", HERE / f"requirements{of_name}-alone.txt"
    files = [each for each in (wanted, alone) if each.is_file()]
    text = "".join(file.read_text() for file in files)
    if done.is_file() and done.read_text() == text:
        return python
    run_words(sys.executable, "-m", "venv", "--clear", folder)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run_words(*pip, "-r", wanted)
    if alone in files:
        run_words(*pip, "--no-deps", "-r", alone)
    done.write_text(text)
    return python


def run_words(*words: object) -> None:
    """Runs a command in the folder of the repository; an error where it fails."""
    subprocess.run(list(map(str, words)), check=True, cwd=ROOT)  # noqa: S603 - our own words
