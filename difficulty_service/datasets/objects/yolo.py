"""YOLO: a text file for each image, with a line for each box, beside the images or in `labels`.

The name of a box is the number of its line, counted from 1. `data.yaml` names the classes and the
folders of the splits; without it the classes are those of `classes.txt` or `obj.names`, or else
numbers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from difficulty_service.base.errors import CleaningError
from difficulty_service.datasets.image_openers import open_image
from difficulty_service.datasets.listing import as_text, check_options
from difficulty_service.datasets.objects.boxes import (
    BoxedImage,
    Boxes,
    build_boxes,
    distinct_names,
    edited,
    new_names,
    within_limits,
)
from difficulty_service.datasets.objects.files import read_file, read_files, walk, without_mark
from difficulty_service.datasets.objects.yolo_config import config_edits
from difficulty_service.datasets.objects.yolo_files import YoloSplit, find_split
from difficulty_service.datasets.objects.yolo_lines import Line, classes_of, decided, lines_of
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision

_CACHES = ".cache"  # what a program made of the labels
_SHARES = (1.0, 1.0)


def open_yolo(location: str, options: DatasetOptions) -> Dataset:
    """Opens the folder of a dataset, or its `data.yaml`."""
    check_options(options, "boxes in YOLO's format")
    split = find_split(location, options)
    every = read_lines(split, keeps_outlines=options.outlines)
    lines = decided(list(within_limits(every, options, location)))
    classes = _classes(split, lines)
    labels = {number: label for label, number in enumerate(classes)}
    boxes = Boxes()
    places = dict[str, int]()
    for name, size in split.images.found.items():
        places[name] = len(boxes.images)
        opener = partial(open_image, split.root.join(name))
        boxes.images.append(BoxedImage(name, opener, _SHARES, size))
    for name, reason in split.images.skipped:
        boxes.skip(name, reason)
    for line in lines:
        if line.image is not None:
            boxes.annotated.add(places[line.image])
        if line.image is None or line.problem is not None:
            name = f"{line.image or line.text}" + (f"#{line.row}" if line.row else "")
            boxes.skip(name, str(line.problem))
            continue
        unknown = f"there is no class {line.number} among the {len(classes)} of the dataset"
        label = labels.get(-1 if line.number is None else line.number, unknown)
        polygons = line.polygons if options.outlines else ()
        boxes.add(places[line.image], str(line.row), label, line.sides, polygons)
    names = list(classes.values())
    revise = partial(_revise, location, options)
    return build_boxes(location, options, names, boxes, revise, split.images.notes)


def _classes(split: YoloSplit, lines: Sequence[Line]) -> Mapping[int, str]:
    """Name of each class by its number, which it is called where nothing names it."""
    return classes_of(lines) if split.classes is None else split.classes


def read_lines(split: YoloSplit, *, keeps_outlines: bool = False) -> Iterator[Line]:
    """The lines of the texts of a split, as far as each of them says what it is."""
    for text in split.others:
        yield Line(text, None, problem="no image has the name of this text")
    for image, reason in split.texts.unclear.items():
        yield Line("", image, problem=reason)
    texts = split.texts.of_images
    contents = read_files([split.root.join(text) for text in texts.values()])
    for (image, text), data in zip(texts.items(), contents, strict=True):
        if isinstance(data, str):
            yield Line(text, image, problem=f"its boxes cannot be read: the text {data}")
            continue
        for line in lines_of(text, image, data, has_keypoints=split.has_keypoints):
            # The corners of outlines take most of the memory.
            yield line if keeps_outlines else replace(line, polygons=())


def _revise(location: str, options: DatasetOptions, changes: Mapping[str, str | None]) -> Revision:
    """The same texts but for the lines that have another class or are gone."""
    split = find_split(location, options)
    lines = decided(list(read_lines(split)))
    classes = _classes(split, lines)
    names = distinct_names(list(classes.values()))
    numbers = dict(zip(names, classes, strict=True))
    added = new_names(changes, numbers)
    first = max(classes, default=-1) + 1
    numbers |= dict(zip(added, range(first, first + len(added)), strict=True))
    changed, warnings = _with_names(split, classes, added)
    known = set[str]()
    rows: dict[str, dict[int, str | None]] = {}
    for line in lines:
        sample_id = as_text(f"{line.image}#{line.row}")
        known.add(sample_id)
        if sample_id in changes:
            rows.setdefault(line.text, {})[line.row] = changes[sample_id]
    for text, changes_of_text in rows.items():
        data = read_file(split.root.join(text))
        kept = without_mark(data).splitlines(keepends=True)
        for row, label in changes_of_text.items():
            number = b"" if label is None else str(numbers[label]).encode()
            kept[row - 1] = re.sub(rb"\S+", number, kept[row - 1], count=1) if number else b""
        mark = data[: len(data) - len(without_mark(data))]
        changed[text] = mark + b"".join(kept)
    return Revision(
        split.root,
        changed,
        [name for name in walk(split.root) if name not in changed and not name.endswith(_CACHES)],
        [name for name in changes if name not in known],
        warnings,
    )


def _with_names(
    split: YoloSplit, classes: Mapping[int, str], added: Sequence[str]
) -> tuple[dict[str, bytes], list[str]]:
    """The files that name the classes, with new ones, and without the path to the original."""
    changed, warnings = dict[str, bytes](), list[str]()
    config = split.config
    if config is not None and not config.is_darknet:
        data = read_file(config.place).decode()
        edits, warnings = config_edits(data, classes, added)
        changed = {config.place.name: edited(data, edits).encode()} if edits else {}
    if not added or (config is not None and config.names is not None):
        return changed, warnings
    if split.classes_file is not None:
        named = read_file(split.root.join(split.classes_file))
        lines = "".join(f"{name}\n" for name in added)
        changed[split.classes_file] = named.rstrip(b"\r\n") + b"\n" + lines.encode()
        return changed, warnings
    file = "classes.txt, one a line"
    if config is not None and not config.is_darknet:
        file = f"{config.place.name} as names"
    raise CleaningError(
        f"there is no class {added[0]!r}, and the dataset has numbers in place of names",
        f"write them into {file}, and score it again",
        parameter="marks",
    )
