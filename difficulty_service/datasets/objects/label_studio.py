"""Label Studio: boxes in the JSON that it exports, a task for each image.

The name of a box is the id of its region. Of several annotations of a task that are not cancelled,
the ground truth counts, or else the newest. A polygon stands for the box around it. Regions that
are neither, and boxes that are rotated, are listed as skipped; predictions and drafts are kept, and
not read. What is written back is the same text but for the regions that somebody decided about.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import count_of
from difficulty_service.datasets.image_openers import cell_opener
from difficulty_service.datasets.json_spans import (
    Span,
    TextEdit,
    first_character,
    parsing,
    removals,
    walk_list,
    walk_object,
)
from difficulty_service.datasets.listing import check_options
from difficulty_service.datasets.objects.boxes import (
    MOST_BYTES,
    BoxedImage,
    Boxes,
    bounds,
    build_boxes,
    edited,
    frame_of,
    within_limits,
)
from difficulty_service.datasets.objects.files import read_text
from difficulty_service.datasets.objects.label_studio_images import (
    UPLOADED,
    Addresses,
    Json,
    Target,
    addresses_of,
    main_key,
    path_of,
    target_of,
)
from difficulty_service.datasets.objects.label_studio_tables import (
    TABLES,
    is_label_studio_table,
    tasks_of_table,
)
from difficulty_service.datasets.objects.one_file import (
    MOST_LIMITED,
    ImagesByName,
    OneFile,
    choose_file,
    files_of,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision
from difficulty_service.datasets.storage import Entry, StoredPath, is_uri, open_file

EXTENSION = ".json"
LABELS = ("rectanglelabels", "polygonlabels", "labels")
"""Types of results with a label and what it is around."""

OTHERS = ("brushlabels", "ellipselabels", "keypointlabels", "vectorlabels", "bitmasklabels")
UNLABELLED = ("rectangle", "polygon", "ellipse", "brush", "keypoint", "vector", "bitmask")
"""Types of results that need another one with the same id for their label."""

_HEAD = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{\s*"')
_SHAPE = re.compile(
    rb'"type"\s*:\s*"(?:' + "|".join((*LABELS, *OTHERS, *UNLABELLED)).encode() + rb')"'
)
_HEAD_BYTES, _TRIED_BYTES = 256, 1 << 20
_SHARES = (1.0, 1.0)


def is_label_studio_file(place: StoredPath) -> bool:
    """Whether a file is a list of tasks, of which one of the first has a region."""
    if not place.name.lower().endswith(EXTENSION):
        return is_label_studio_table(place)
    try:
        with open_file(place) as file:
            head = file.read(_HEAD_BYTES)
            if _HEAD.match(head) is None:
                return False
            head += file.read(_TRIED_BYTES)
    except OSError:
        return False
    return all(name in head for name in (b'"annotations"', b'"data"')) and bool(_SHAPE.search(head))


def find_label_studio(place: StoredPath, entries: list[Entry]) -> dict[str, StoredPath]:
    """Such files in a folder, by their names."""
    found = files_of(place, entries, EXTENSION, is_label_studio_file)
    for extension in TABLES if not found else ():
        found |= files_of(place, entries, extension, is_label_studio_table)
    return found


@dataclass(frozen=True)
class Region:
    """A box of a task, by where it is in the file.

    Attributes:
        task: Number of the task.
        annotation: Number of the annotation in it.
        result: Number of the result in that, which has its label.
    """

    task: int
    annotation: int
    result: int


@dataclass(frozen=True)
class FoundRegion:
    """A region as it is read, on an image or for a reason on none.

    Attributes:
        label: Its category, or a text that says why it is no box.
        shares: Left, top, right and bottom in shares of the image.
        corners: Those of an outline, x and y in turn, in shares of the image.
    """

    target: Target | str
    key: str
    label: tuple[str] | str
    shares: Sequence[object]
    corners: Sequence[object]
    region: Region


@dataclass(frozen=True)
class Task:
    """The images of a task and its regions.

    Attributes:
        frames: Width and height of each image, as the first region of it says.
    """

    name: str
    addresses: Addresses
    frames: Mapping[Target, tuple[float, float]]
    found: Sequence[FoundRegion]


@dataclass
class Tasks:
    """The tasks of a file, whose labels are texts until all of them are known.

    Attributes:
        keeps_outlines: Whether outlines are read.
        repeated: Number of tasks with several annotations that count.
        unread: Number of tasks with predictions or drafts.
    """

    keeps_outlines: bool = False
    every: list[Task] = field(default_factory=list)
    repeated: int = 0
    unread: int = 0

    def add(self, task: Json, _span: Span) -> None:
        """Takes a task into account; raises ValueError where it is none."""
        number = len(self.every)
        annotations = task.get("annotations") or []
        if not isinstance(task.get("data"), dict) or not _is_list_of_objects(annotations):
            raise ValueError(f"task {number} has no data or annotations as those of images have")
        self.unread += any(task.get(name) for name in ("predictions", "drafts"))
        usable = [place for place, each in enumerate(annotations) if _counts(each)]
        self.repeated += len(usable) > 1
        newest = max(usable, key=lambda place: _precedence(annotations[place]), default=None)
        results: Sequence[Json] = [] if newest is None else annotations[newest]["result"]
        regions = [*_regions(results)]
        tags = {str(results[place].get("to_name")) for place, *_ in regions}
        addresses = addresses_of(task["data"], tags)
        frames = dict[Target, tuple[float, float]]()
        found = list[FoundRegion]()
        for place, key, label, shares in regions:
            target = target_of(results[place], addresses)
            frame = _frame(results[place])
            if frame is not None and not isinstance(target, str):
                frames.setdefault(target, frame)
            corners = _corners(results[place].get("value")) if self.keeps_outlines else ()
            region = Region(number, newest or 0, place)
            found.append(FoundRegion(target, key, label, shares, corners, region))
        name = f"task {str(task.get('id', number))[:20]}"
        self.every.append(Task(name, addresses, frames, found))


class _Scenes:
    """The images of all tasks, some of which several tasks may have."""

    def __init__(self, file: OneFile, addresses: Iterable[str]) -> None:
        self.boxes = Boxes()
        self._folder = file.root
        self._rows = dict[str, int]()
        self._images = ImagesByName(file.root, file.sizes)
        self._found = self._images.find_all(map(path_of, addresses), _as_before_upload)

    def row(self, address: str, frame: tuple[float, float] | None) -> int:
        """The place of the image at an address; its frame is the first one that is known."""
        image = self._image(address, frame)
        row = self._rows.setdefault(image.name, len(self.boxes.images))
        if row == len(self.boxes.images):
            self.boxes.images.append(image)
        elif self.boxes.images[row].frame is None:
            self.boxes.images[row] = replace(self.boxes.images[row], frame=frame)
        return row

    def _image(self, address: str, frame: tuple[float, float] | None) -> BoxedImage:
        path = path_of(address)
        found = self._found[path]
        if not found.matches and not found.rivals and is_uri(address):
            return BoxedImage(address, cell_opener(address, self._folder), frame)
        return self._images.image(path if found.rivals else path.rpartition("/")[2], found, frame)


def _as_before_upload(path: str) -> str:
    above, slash, name = path.rpartition("/")
    return f"{above}{slash}{UPLOADED.sub('', name)}"


def open_label_studio(location: str, options: DatasetOptions) -> Dataset:
    """Opens an exported file, or the folder that holds it."""
    check_options(options, "boxes of Label Studio")
    read = _Export(location, options)
    tasks = read.tasks
    notes = []
    if tasks.repeated:
        images = count_of(tasks.repeated, "image")
        notes.append(
            f"{images} annotated several times: the ground truth counts, or else the newest"
        )
    if tasks.unread:
        images = count_of(tasks.unread, "image")
        notes.append(f"{images} with predictions or drafts, which are not read")
    revise = partial(_revise, location, options)
    return build_boxes(location, options, read.categories, read.boxes, revise, notes)


class _Export:
    """The boxes of a file, each in the place of its region.

    Attributes:
        is_table: Whether the file is one of rows, of which the text is made.
    """

    def __init__(self, location: str, options: DatasetOptions) -> None:
        self.file: OneFile = choose_file(location, options, find_label_studio)
        if self.file.split is not None:
            check_options(options, "a single file of Label Studio", ("split",))
        most = MOST_BYTES if options.limits is None else MOST_LIMITED
        self.is_table = self.file.place.name.lower().endswith(TABLES)
        self.text = (
            tasks_of_table(self.file.place)
            if self.is_table
            else read_text(self.file.place, location, most)
        )
        self.tasks = Tasks(keeps_outlines=options.outlines)
        with parsing(self.file.place):
            _walk_tasks(self.text, self.tasks.add)
        every = self.tasks.every
        known = {each.label[0] for task in every for each in task.found if _is_labelled(each)}
        self.categories = sorted(known)
        self._labels = {name: label for label, name in enumerate(self.categories)}
        shown = _shown(every)
        addresses = [address for _, address in shown]
        scenes = _Scenes(self.file, addresses)
        self.boxes = scenes.boxes
        rows = {address: scenes.row(address, frame) for frame, address in shown}
        pairs = ((task, each) for task in every for each in task.found)
        for task, each in within_limits(pairs, options, location):
            self._add(task, each, rows)

    def _add(self, task: Task, found: FoundRegion, rows: Mapping[str, int]) -> None:
        if isinstance(found.target, str):
            self.boxes.skip(f"{task.name}#{found.key}", found.target)
            return
        key, page = found.target
        row = rows[task.addresses[key][page]]
        frame = self.boxes.images[row].frame
        polygon = _scaled(found.corners, frame)
        label = found.label
        number = label if isinstance(label, str) else self._labels[label[0]]
        sides = _scaled(found.shares, frame)
        polygons = [polygon] if polygon else []
        self.boxes.add(row, found.key, number, sides, polygons, found.region)


def _is_labelled(found: FoundRegion) -> bool:
    return not isinstance(found.label, str)


def _shown(tasks: Sequence[Task]) -> list[tuple[tuple[float, float] | None, str]]:
    """The frame and the address of each image that is annotated, in the order of the tasks."""
    keys = {each.target[0] for task in tasks for each in task.found if _is_placed(each)}
    shown = list[tuple[tuple[float, float] | None, str]]()
    for task in tasks:
        chosen = [key for key in task.addresses if key in keys]
        chosen = chosen or [main_key(task.addresses) or next(iter(task.addresses))]
        placed = {each.target for each in task.found}
        for key in chosen:
            for page, address in enumerate(task.addresses[key]):
                # Where no size is known, shares are of the image as it is.
                known = task.frames.get((key, page))
                shown.append((known or (_SHARES if (key, page) in placed else None), address))
    return shown


def _is_placed(found: FoundRegion) -> bool:
    return not isinstance(found.target, str)


def _walk_tasks(text: str, take: Any) -> None:  # noqa: ANN401 - as walk_list takes it
    start = first_character(text)
    if text[start] != "[":
        raise ValueError("it is not a list of tasks")
    walk_list(text, start, take)


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _counts(annotation: Json) -> bool:
    return not annotation.get("was_cancelled") and _is_list_of_objects(annotation.get("result"))


def _precedence(annotation: Json) -> tuple[bool, str]:
    when = annotation.get("updated_at") or annotation.get("created_at") or ""
    return bool(annotation.get("ground_truth")), str(when)


def _frame(result: Json) -> tuple[float, float] | None:
    return frame_of(result.get("original_width"), result.get("original_height"))


def _regions(
    results: Sequence[Json],
) -> Iterator[tuple[int, str, tuple[str] | str, Sequence[object]]]:
    """Number, name, label and sides of each result that is around something.

    A text in place of a label is the reason why it is no box.
    """
    labelled = {str(each.get("id")) for each in results if each.get("type") in (*LABELS, *OTHERS)}
    for place, each in enumerate(results):
        kind, key = each.get("type"), each.get("id")
        if kind not in (*LABELS, *OTHERS, *UNLABELLED):
            continue  # an answer about the image or a region, or a relation of two
        if kind in UNLABELLED and str(key) in labelled:
            continue
        value = each.get("value")
        value = value if isinstance(value, dict) else {}
        name = str(key) if isinstance(key, str | int) else f"#{place + 1}"
        label = _problem(each, value) if name == str(key) else "it has no id"
        yield place, name, label or _label(value.get(str(kind))), _shares(value)


def _problem(result: Json, value: Json) -> str | None:
    """The reason why a result is no box; None where it is one or has one around it."""
    kind = result["type"]
    if kind in OTHERS or any(name in value for name in ("radiusX", "rle")):
        return f"it is a region of the type {kind}, and no box or polygon"
    for name, reason in ((value, "rotation"), (result, "image_rotation")):
        degrees = name.get(reason) or 0
        if not isinstance(degrees, int | float) or degrees % 360:
            what = "it is" if reason == "rotation" else "its image was"
            return f"{what} rotated by {degrees} degrees"
    return None


def _label(names: object) -> tuple[str] | str:
    if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
        return "it has no category"
    return (names[0],) if len(names) == 1 else f"it has {len(names)} labels, and a box has one"


def _shares(value: Json) -> Sequence[object]:
    """Left, top, right and bottom in shares of the image."""
    points = value.get("points")
    if isinstance(points, list):
        numbers = bounds([each if isinstance(each, list) else [] for each in points])
    else:
        left, top, width, height = (value.get(name) for name in ("x", "y", "width", "height"))
        if not all(isinstance(each, int | float) for each in (left, top, width, height)):
            return ()
        numbers = (left, top, left + width, top + height)  # type: ignore[operator]
    try:
        return [float(each) / 100 for each in numbers]  # type: ignore[arg-type]
    except OverflowError:
        return ()


def _corners(value: object) -> Sequence[object]:
    """Corners of a polygon, x and y in turn, in shares of the image; none of other regions."""
    points = value.get("points") if isinstance(value, dict) else None
    if not isinstance(points, list) or not all(isinstance(each, list) for each in points):
        return ()
    numbers = [number for point in points for number in point]
    known = [each for each in numbers if isinstance(each, int | float)]
    try:
        return [float(each) / 100 for each in known] if len(known) == len(numbers) else ()
    except OverflowError:
        return ()


def _scaled(shares: Sequence[object], frame: tuple[float, float] | None) -> Sequence[object]:
    """Sides in the unit of the frame of their image."""
    if not shares or frame is None:
        return shares
    return [float(each) * frame[place % 2] for place, each in enumerate(shares)]  # type: ignore[arg-type]


def _revise(location: str, options: DatasetOptions, changes: Mapping[str, str | None]) -> Revision:
    """The same text but for the regions that have another label or are gone."""
    read = _Export(location, options)
    if read.is_table:
        raise DatasetError(
            f"{location!r} is a table, to which Label Studio writes regions without their ids",
            "export the project as JSON and score that, or write a list, by a name that ends in "
            ".csv",
        )
    regions, unknown = read.boxes.decided(changes)
    decided: dict[int, dict[Region, str | None]] = {}
    for region, label in regions:
        decided.setdefault(region.task, {})[region] = label
    edits = list[TextEdit]()
    spans = list[Span]()
    _walk_tasks(read.text, lambda _, span: spans.append(span))
    for task, of_task in decided.items():
        edits += _task_edits(read.text, spans[task], of_task)
    return read.file.revision(edited(read.text, edits).encode(), read.boxes, unknown)


def _task_edits(text: str, span: Span, decided: Mapping[Region, str | None]) -> Iterator[TextEdit]:
    annotations = _elements(text, span[0], "annotations")
    # All boxes of a task are of the one annotation that counts.
    (number,) = {region.annotation for region in decided}
    results = _elements(text, annotations[number][1][0], "result")
    gone = {str(results[each.result][0]["id"]) for each, label in decided.items() if label is None}
    for region, label in decided.items():
        if label is not None:
            value, (start, _) = results[region.result]
            yield _label_edit(text, start, str(value["type"]), label)
    yield from removals(
        [each for _, each in results],
        {place for place, (value, _) in enumerate(results) if _names(value, gone)},
    )


def _names(result: Json, gone: set[str]) -> bool:
    """Whether a result is a region that is gone, an answer about it, or a relation with it."""
    return any(str(result[name]) in gone for name in ("id", "from_id", "to_id") if name in result)


def _elements(text: str, start: int, name: str) -> list[tuple[Json, Span]]:
    """The elements of a list of the object at a place."""
    found = list[tuple[Json, Span]]()
    walk_object(text, start, {name: lambda value, span: found.append((value, span))})
    return found


def _label_edit(text: str, start: int, kind: str, label: str) -> TextEdit:
    """Replaces the only label of the result at a place."""
    value = walk_object(text, start, {})["value"][0]
    at = text.index('"', walk_object(text, value, {})[kind][0])
    return at, scanstring(text, at + 1, True)[1], json.dumps(label, ensure_ascii=False)  # noqa: FBT003
