"""One dataset of the table: who writes it, of what, and how its own reader sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.formats.scenes import Scene

BOXES, CLASSES, REFUSED = "boxes", "classes", "refused"
"""What ours is expected to make of a dataset: boxes, images with a class, or an error by name."""

Row = tuple[str, str, str, tuple[float, ...]]
"""Split, path of the image, class, and left, top, right and bottom; none of a class of an image."""


@dataclass(frozen=True)
class Reading:
    """What a reader found.

    Attributes:
        classes: In its order.
        images: Number of images, with and without boxes.
        skipped: Number of entries that a reader lists as none of its samples.
        unseen: Number of crops that do not show the object.
    """

    rows: Sequence[Row]
    classes: Sequence[str]
    images: int
    skipped: int = 0
    unseen: int = 0


@dataclass(frozen=True)
class Case:
    """A dataset that a program writes.

    Attributes:
        write: Writes scenes into an empty folder.
        read: Reads the folder with the same program; None where that has no reader.
        kind: BOXES, CLASSES or REFUSED.
        path: What is opened, below the folder; `{split}` in it stands for a split of the scenes.
        splits: What ours is asked for to get each split of the scenes; None asks for none.
        layout: A word that a refusal has to say.
        numbered: Whether classes are their places among CATEGORIES, and have no names.
    """

    writer: str
    form: str
    situation: str
    write: Callable[[Path, Sequence[Scene]], None]
    read: Callable[[Path, Sequence[Scene]], Reading] | None = None
    kind: str = BOXES
    path: str = ""
    splits: dict[str, str | None] = field(default_factory=lambda: {"train": None})
    layout: str = ""
    numbered: bool = False

    @property
    def name(self) -> str:
        """Name of its folder."""
        words = f"{self.writer} {self.form} {self.situation}".lower()
        return "-".join("".join(c if c.isalnum() else " " for c in words).split())
