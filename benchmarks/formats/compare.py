"""What was read beside the truth: boxes that are missing, more, elsewhere or of another class."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.formats.case import CLASSES, Reading, Row
from benchmarks.formats.ours import Decided, name_of
from benchmarks.formats.scenes import CATEGORIES, Scene

NEAR = 8.0
"""Pixels up to which two boxes are of the same object; those of the scenes are further apart."""

SAME = 0.01
"""Pixels up to which two boxes are equal; six digits of YOLO are 0.0003 pixels here."""


@dataclass(frozen=True)
class Compared:
    """How a reading differs from the truth.

    Attributes:
        boxes: Number of boxes, or of images with a class.
        pixels: Largest difference of a side of two boxes of the same object.
        classes: Whether each has its class, and no other name is among the classes.
        differences: Each in a few words; none where all is equal.
    """

    boxes: int
    pixels: float
    classes: bool
    differences: tuple[str, ...]


def truth_of(scenes: Sequence[Scene], kind: str, *, numbered: bool = False) -> list[Row]:
    """The rows that a reader should find."""
    rows: list[Row] = []
    for scene in scenes:
        for thing in scene.things[: 1 if kind == CLASSES else None]:
            across, down = zip(*thing.outline, strict=True)
            sides = (min(across), min(down), max(across), max(down))
            label = str(CATEGORIES.index(thing.label)) if numbered else thing.label
            rows.append((scene.split, scene.name, label, () if kind == CLASSES else sides))
    return rows


def compared(truth: Sequence[Row], found: Reading, scenes: Sequence[Scene]) -> Compared:
    """A reading beside the truth."""
    rows = named(found.rows, scenes)
    pairs, missing, more = matched(truth, rows)
    pixels = max((_apart(one, other) for one, other in pairs), default=0.0)
    wrong = sum(one[2] != other[2] for one, other in pairs)
    names = {row[2] for row in truth}
    known = {*CATEGORIES} if names <= {*CATEGORIES} else {*map(str, range(len(CATEGORIES)))}
    strange = sorted({*found.classes} - known)
    classes = not wrong and not strange
    differences = [
        *([f"{missing} missing"] if missing else []),
        *([f"{more} more"] if more else []),
        *([f"{pixels:.2f} px"] if pixels > SAME else []),
        *([f"{wrong} of another class"] if wrong else []),
        *([f"classes {', '.join(map(repr, strange))}"] if strange else []),
    ]
    lost = len(scenes) - found.images
    if lost and len({*truth}) and truth[0][3]:
        differences.append(
            f"{abs(lost)} image{'s'[: abs(lost) > 1]} {'fewer' if lost > 0 else 'more'}"
        )
    return Compared(len(rows), pixels, classes, tuple(differences))


def named(rows: Iterable[Row], scenes: Sequence[Scene]) -> list[Row]:
    """Rows with the names of the scenes in place of paths."""
    splits = {scene.split for scene in scenes}
    chosen = {split: [scene for scene in scenes if scene.split == split] for split in splits}
    return [
        (split, name_of(name, chosen.get(split, scenes)), label, tuple(sides))
        for split, name, label, sides in rows
    ]


def matched(truth: Iterable[Row], found: Iterable[Row]) -> tuple[list[tuple[Row, Row]], int, int]:
    """Pairs of rows of the same object, nearest first, and how many are without one in each."""
    groups: Mapping[tuple[str, str], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for place, rows in enumerate((truth, found)):
        for row in rows:
            groups[row[:2]][place].append(row)
    pairs, missing, more = list[tuple[Row, Row]](), 0, 0
    for ours, others in groups.values():
        near = sorted(
            (_apart(one, other), one[2] != other[2], first, second)
            for first, one in enumerate(ours)
            for second, other in enumerate(others)
        )
        taken: tuple[set[int], set[int]] = (set(), set())
        for distance, _, first, second in near:
            if distance <= NEAR and first not in taken[0] and second not in taken[1]:
                taken[0].add(first)
                taken[1].add(second)
                pairs.append((ours[first], others[second]))
        missing += len(ours) - len(taken[0])
        more += len(others) - len(taken[1])
    return pairs, missing, more


def _apart(one: Row, other: Row) -> float:
    return max((abs(a - b) for a, b in zip(one[3], other[3], strict=True)), default=0.0)


def decided(rows: Sequence[Row], decisions: Decided) -> list[Row]:
    """Rows as they should be after the two decisions, of the boxes that are nearest to them."""
    left = list(rows)
    for row, label in ((decisions.relabelled, decisions.label), (decisions.dropped, None)):
        near = [each for each in left if each[:2] == row[:2] and _apart(each, row) <= NEAR]
        if near:
            nearest = min(near, key=lambda each, row=row: (_apart(each, row), each[2] != row[2]))  # type: ignore[misc]
            left.remove(nearest)
            if label is not None:
                left.append((*nearest[:2], label, nearest[3]))
    return left


def changed_only(expected: Sequence[Row], found: Sequence[Row]) -> bool:
    """Whether two lists have the same rows in any order, up to rounding."""
    return Counter(map(_rounded, expected)) == Counter(map(_rounded, found))


def _rounded(row: Row) -> tuple[object, ...]:
    return (*row[:3], tuple(round(side, 1) for side in row[3]))
