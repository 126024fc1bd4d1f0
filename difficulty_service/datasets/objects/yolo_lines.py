"""The lines of a text of YOLO: boxes, outlines, key points, and what detectors and trackers write.

A line is `class x y width height` in shares of the image, with the middle of the box, or `class x y
x y …` with the corners of an outline. Detectors add the confidence, trackers that and a number of
the object: six values, as many as an outline of three corners has. Which of the two they are is
decided by all lines of a dataset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from difficulty_service.datasets.objects.files import without_mark

VALUES = 4
"""Numbers of a box."""

_TRACKED = VALUES + 2
_CORNERS = 6  # numbers of the smallest outline
_VISIBLE = (0.0, 1.0, 2.0)
_OUTSIDE = 0.5  # as a share of the image, how far a corner may be beside it
_LOOKED_AT = 100


@dataclass(frozen=True)
class Line:
    """A line of a text that is not blank, or what is wrong with it or with the text.

    Attributes:
        row: Number of the line, counted from 1; 0 for the text as a whole.
        number: Number of its class.
        values: Numbers whose meaning is not clear from the line alone.
        length: How many numbers follow the class.
        may_be_points: Whether every third number after those of a box may be how visible a key
            point is.
    """

    text: str
    image: str | None
    row: int = 0
    number: int | None = None
    sides: Sequence[object] = field(default=())
    problem: str | None = None
    polygons: Sequence[Sequence[float]] = ()
    values: tuple[float, ...] = ()
    length: int = 0
    may_be_points: bool = False


def is_label_text(data: bytes) -> bool:
    """Whether one of the first lines of a text has as many numbers as a box."""
    return any(map(_numbers_of, _first_lines(data)))


def has_box(data: bytes) -> bool:
    """Whether one of the first lines is a class and numbers in shares of an image."""
    found = filter(None, map(_numbers_of, _first_lines(data)))
    return any(_is_id(number) and _may_be_outline(each[:VALUES]) for number, *each in found)


def _first_lines(data: bytes) -> list[bytes]:
    return without_mark(data).splitlines()[:_LOOKED_AT]


def _numbers_of(line: bytes) -> list[float]:
    """The numbers of a line with a class and a box; none of any other line."""
    parts = line.split()
    try:
        return [*map(float, parts)] if len(parts) > VALUES else []
    except ValueError:
        return []


def lines_of(text: str, image: str, data: bytes, *, has_keypoints: bool) -> Iterator[Line]:
    """The lines of a text that are not blank."""
    for row, line in enumerate(without_mark(data).splitlines(), 1):
        parts = line.decode(errors="replace").split()
        if parts:
            yield _parse(Line(text, image, row), parts, has_keypoints=has_keypoints)


def _parse(line: Line, parts: Sequence[str], *, has_keypoints: bool) -> Line:
    try:
        number, *values = map(float, parts)
    except ValueError:
        return replace(line, problem="its line has other words than numbers")
    if not number.is_integer():
        return replace(line, problem=f"its class {parts[0]!r} is no whole number")
    line = replace(line, number=int(number), length=len(values))
    if len(values) in {VALUES, VALUES + 1} or (has_keypoints and len(values) > VALUES):
        return _as_box(line, values)  # a fifth one is the confidence of a detector
    visible = values[VALUES + 2 :: 3]
    may_be_points = (len(values) - VALUES) % 3 == 0 and all(each in _VISIBLE for each in visible)
    return _parse_outline(replace(line, may_be_points=may_be_points), values)


def _parse_outline(line: Line, values: list[float]) -> Line:
    """A line of more numbers than a box has, or of fewer."""
    if len(values) > _CORNERS and len(values) % 2 and (_is_share(values[-1]) or _is_id(values[-1])):
        return _as_outline(line, values[:-1])  # with its confidence, or the number of a track
    if len(values) < _CORNERS or len(values) % 2:
        return _wrong(line, f"its line has {len(values)} numbers after the class, not 4")
    if len(values) == _TRACKED or _is_id(values[-1]):
        return replace(line, values=tuple(values))
    return _as_outline(line, values)


def _wrong(line: Line, problem: str) -> Line:
    return replace(line, number=None, problem=problem, values=())


def _as_box(line: Line, values: Sequence[float]) -> Line:
    """The line as one whose first numbers are the middle and the size of a box."""
    x, y, width, height = values[:VALUES]
    sides = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return replace(line, sides=sides, values=())


def _as_outline(line: Line, values: Sequence[float]) -> Line:
    """The line as one whose numbers are corners."""
    across, down = values[::2], values[1::2]
    sides = (min(across), min(down), max(across), max(down))
    if not _may_be_outline(values):
        return _wrong(line, "its line is no box, and no outline in shares of the image")
    return replace(line, sides=sides, polygons=[list(values)], values=())


def _is_share(value: float) -> bool:
    return 0 <= value <= 1


def _is_id(value: float) -> bool:
    return value >= 0 and value.is_integer()


def _may_be_outline(values: Sequence[float]) -> bool:
    return not (min(values) < -_OUTSIDE or max(values) > 1 + _OUTSIDE)


def decided(lines: Sequence[Line]) -> list[Line]:
    """The lines, of which those that may mean several things are what all of them say."""
    lines = _without_points(lines)
    unclear = [line for line in lines if line.values]
    tracks = _has_tracks([line for line in unclear if line.length == _TRACKED], lines)
    with_masks = any(line.length > _TRACKED and _is_track_of_mask(line.values) for line in unclear)
    found = list[Line]()
    for line in lines:
        if not line.values:
            found.append(line)
        elif line.length > _TRACKED:
            values = line.values[:-2] if with_masks and _is_id(line.values[-1]) else line.values
            found.append(_as_outline(line, values))
        elif _is_track(line.values) or (tracks and _may_be_track(line.values)):
            found.append(_as_box(line, line.values))
        elif tracks is False or not _may_be_track(line.values):
            found.append(_as_outline(line, line.values))
        else:
            found.append(_wrong(line, _UNCLEAR))
    return found


_UNCLEAR = (
    "its six numbers may be an outline of three corners or a box with its confidence and the "
    "number of a track"
)


def _has_tracks(six: Sequence[Line], lines: Sequence[Line]) -> bool | None:
    """Whether lines of six values are boxes with numbers of tracks; None where that is not clear.

    Of outlines, others of the dataset have more corners; of boxes, others have a confidence alone.
    """
    tracked = any(_is_track(line.values) for line in six)
    outlined = any(_may_be_outline(line.values) and not _may_be_track(line.values) for line in six)
    if tracked or outlined:
        return None if tracked and outlined else tracked
    lengths = {line.length for line in lines if line.problem is None}
    has_outlines, has_detections = max(lengths, default=0) > _TRACKED, VALUES + 1 in lengths
    return None if has_outlines == has_detections else has_detections


def _may_be_track(values: Sequence[float]) -> bool:
    """Whether six values may be a box, a confidence, and the number of a track."""
    x, y, width, height, confidence, track = values
    in_image = all(
        middle - size / 2 >= -_OUTSIDE and middle + size / 2 <= 1 + _OUTSIDE
        for middle, size in ((x, width), (y, height))
    )
    return _is_id(track) and _is_share(confidence) and in_image and width > 0 and height > 0


def _is_track(values: Sequence[float]) -> bool:
    """Whether the last of six values is the number of a track, and no place in the image."""
    return values[-1] > 1 + _OUTSIDE and _may_be_track(values)


def _is_track_of_mask(values: Sequence[float]) -> bool:
    """Whether an outline, a confidence, and the number of a track: no place in the image."""
    return values[-1] > 1 + _OUTSIDE and _is_share(values[-2]) and _may_be_outline(values[:-2])


def _without_points(lines: Sequence[Line]) -> list[Line]:
    """The lines, of which none is an outline where all may have key points instead."""
    long = [line for line in lines if line.length > VALUES + 1]
    # Of key points, each line has as many.
    if not all(line.may_be_points for line in long) or len({line.length for line in long}) != 1:
        return [*lines]
    problem = (
        "its numbers may be an outline or a box with key points: write kpt_shape into data.yaml, "
        "if they are that"
    )
    return [_wrong(line, problem) if line.length == long[0].length else line for line in lines]


def classes_of(lines: Sequence[Line]) -> Mapping[int, str]:
    """Numbers of classes, by which they are called where nothing names them."""
    numbers = {line.number for line in lines if line.number is not None and line.number >= 0}
    return {number: str(number) for number in sorted(numbers)}
