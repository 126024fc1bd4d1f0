"""Has several versions of Sentence Transformers save small random encoders, and encode texts.

    python -m benchmarks.sentence_folders [FOLDER]

Installs each version into FOLDER (`.sentence-folders` unless given), with the transformers of its
time, and writes `tests/data/sentence_transformers`: the folders as they were saved, and in
`embeddings.json` what the version that saved each makes of `TEXTS`, and what the newest one does.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.sentence_folders.write import TEXTS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIXTURES = ROOT / "tests" / "data" / "sentence_transformers"
VERSIONS = {"3.4.1": "4.49.0", "5.3.0": "4.57.6", "6.2.0": "5.23.0"}
"""Version of transformers for each of Sentence Transformers, the newest last."""


def environment(folder: Path, version: str) -> Path:
    """The interpreter of one version, which is installed where it is not."""
    python = folder / version / "bin" / "python"
    if not python.is_file():
        _run(sys.executable, "-m", "venv", folder / version)
        wanted = [f"sentence-transformers=={version}", f"transformers=={VERSIONS[version]}"]
        _run(python, "-m", "pip", "install", "--quiet", *wanted)
    return python


def _run(*words: object) -> str:
    command = list(map(str, words))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own words
    return done.stdout


def main() -> None:
    """Writes the folders and their embeddings anew."""
    work = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".sentence-folders")
    shutil.rmtree(FIXTURES, ignore_errors=True)
    pythons = {version: environment(work, version) for version in VERSIONS}
    *_, newest = VERSIONS
    for version, python in pythons.items():
        _run(python, HERE / "write.py", "save", FIXTURES / version)
    folders = {
        version: sorted(each for each in (FIXTURES / version).iterdir()) for version in VERSIONS
    }
    read = {version: folders[version] for version in VERSIONS} | {
        newest: [each for group in folders.values() for each in group]
    }
    embeddings: dict[str, dict[str, object]] = {}
    for version, group in read.items():
        found = json.loads(_run(pythons[version], HERE / "write.py", "encode", *group))
        for folder, rows in zip(group, found, strict=True):
            embeddings.setdefault(folder.relative_to(FIXTURES).as_posix(), {})[version] = rows
    content = {"texts": TEXTS, "newest": newest, "embeddings": embeddings}
    text = json.dumps(content, indent=1).replace("\n     ", " ").replace("\n    ]", " ]")
    (FIXTURES / "embeddings.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
