"""The Dockerfile, read instruction by instruction."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile.

    Attributes:
        stage: Name of its stage; "" before the first.
        name: In capitals, such as RUN.
        text: Its arguments, in one line.
    """

    stage: str
    name: str
    text: str


@pytest.fixture(scope="session")
def instructions() -> list[Instruction]:
    """All instructions of docker/Dockerfile, in order."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    found, stage = [], ""
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stage = rest.rpartition(" AS ")[2]
        found.append(Instruction(stage, name, rest.strip()))
    return found
