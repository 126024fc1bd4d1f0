"""The marks that there are: what each says of a sample, its key, and its words on pages.

Buttons, keys, filters and sums of all pages are made of `MARK_KINDS`, and so is what their scripts
know of marks. How a mark changes a dataset is decided where that is done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal


class Mark(StrEnum):
    """What to do with a sample."""

    KEEP = "keep"
    RELABEL = "relabel"
    DROP = "drop"
    MISPLACED = "misplaced"

    @property
    def kind(self) -> "MarkKind":
        """What it says and how it is shown."""
        return MARK_KINDS[self]


@dataclass(frozen=True)
class MarkKind:
    """What a mark says of a sample, and how it is shown.

    Attributes:
        key: Key of the keyboard that gives it.
        help: What the key does, where `{noun}` is an image or a text.
        verb: Words on a button.
        of_one: Words below them on the button for one sample.
        class_of_one: Class of that sample which follows these words: the one it has, or the one
            that fits better.
        of_several: Words on a button for several samples whose number it does not show.
        done: What the samples with it are called in a sum.
        colour: Colour of its points on a map.
        needs_class: Whether it goes with the name of another class.
        is_wrong: Whether it says that the label is wrong.
        for_boxes: Whether it is about boxes of objects alone.
    """

    key: str
    help: str
    verb: str
    of_one: str
    class_of_one: Literal["given", "nearest"] | None
    of_several: str
    done: str
    colour: str
    needs_class: bool = False
    is_wrong: bool = False
    for_boxes: bool = False


MARK_KINDS: Mapping[Mark, MarkKind] = {
    Mark.KEEP: MarkKind(
        key="K",
        help="keep the label",
        verb="Keep",
        of_one="",
        class_of_one="given",
        of_several="Keep their labels",
        done="kept",
        colour="#0f8f84",
    ),
    Mark.RELABEL: MarkKind(
        key="R",
        help="relabel as the class that fits better",
        verb="Relabel",
        of_one="as",
        class_of_one="nearest",
        of_several="Relabel as suggested",
        done="relabelled",
        colour="#3b78d8",
        needs_class=True,
        is_wrong=True,
    ),
    Mark.DROP: MarkKind(
        key="D",
        help="drop the {noun}",
        verb="Drop",
        of_one="the {noun}",
        class_of_one=None,
        of_several="Drop them",
        done="dropped",
        colour="#c0392b",
        is_wrong=True,
    ),
    Mark.MISPLACED: MarkKind(
        key="B",
        help="misplaced box: the category is right, but the object is elsewhere",
        verb="Misplaced",
        of_one="box",
        class_of_one=None,
        of_several="Their boxes are misplaced",
        done="with a misplaced box",
        colour="#8a5cc2",
        for_boxes=True,
    ),
}
"""The marks, in the order in which pages list them."""


def kinds_for(*, boxes: bool) -> Mapping[Mark, MarkKind]:
    """The marks for samples that are boxes of objects, or for others."""
    return {mark: kind for mark, kind in MARK_KINDS.items() if boxes or not kind.for_boxes}


def count_kinds(counts: Mapping[str, int]) -> str:
    """How many samples have each mark, in words, those with a wrong label first."""
    known = kinds_for(boxes=any(mark.kind.for_boxes and counts.get(mark) for mark in Mark))
    marks = sorted(known, key=lambda mark: not mark.kind.is_wrong)
    return ", ".join(f"{counts.get(mark, 0):,} {mark.kind.done}" for mark in marks)


def script_data(marks: Iterable[Mark]) -> list[dict[str, Any]]:
    """What the scripts of a page know of some marks, as JSON values."""
    return [
        {
            "mark": mark.value,
            "key": mark.kind.key.lower(),
            "colour": mark.kind.colour,
            "classOfOne": mark.kind.class_of_one,
            "needsClass": mark.kind.needs_class,
            "isWrong": mark.kind.is_wrong,
        }
        for mark in marks
    ]
