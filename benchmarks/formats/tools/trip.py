"""What a program found in an export, and what came back of it. Needs no other package."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KEEP, RELABEL, DROP, NONE = "keep", "relabel", "drop", "none"
KINDS = (KEEP, RELABEL, DROP, NONE)
"""What is decided about a sample; `none` stands for one at which nobody looked."""


@dataclass(frozen=True)
class Trip:
    """An export in a program.

    Attributes:
        export: Format of the export.
        form: What the program opened, or wrote with the decisions.
        samples: Number of samples that it has.
        images: Number of images that it shows.
        marks: What it wrote with the decisions, below the folder of the trip; None where it takes
            none.
        carried: Kinds of decisions that the form can say.
    """

    export: str
    form: str
    samples: int
    images: int
    marks: str | None = None
    carried: tuple[str, ...] = KINDS


Trips = Callable[[Path, Path], Iterator[Trip]]
"""Opens the exports in a folder, and writes into one of its own."""


@dataclass(frozen=True)
class ToolDecision:
    """What a person decides about a sample.

    Attributes:
        label: Class that it gets, which may be the one it has.
    """

    kind: str
    label: str


def decisions_of(folder: Path) -> Mapping[str, ToolDecision]:
    """The decisions by the ids of the samples."""
    given = json.loads((folder / "decisions.json").read_text("utf-8"))
    return {sample_id: ToolDecision(*each) for sample_id, each in given.items()}
