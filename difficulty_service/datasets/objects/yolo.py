"""YOLO: a text file for each image, with a line for each box, beside the images or in `labels`.

The name of a box is the number of its line, counted from 1. A line is `class x y width height` in
shares of the image, with the middle of the box, or `class x y x y …` with the corners of an
outline. `data.yaml` names the classes and the folders of the splits; without it the classes are
those of `classes.txt` or `obj.names`, or else numbers.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import yaml

from difficulty_service.base.errors import CleaningError, DatasetError
from difficulty_service.datasets.image_openers import has_image_extension, open_image
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
from difficulty_service.datasets.objects.files import (
    nested,
    read_file,
    read_files,
    read_or_reason,
    walk,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions, Revision
from difficulty_service.datasets.splits import SPLIT_NAMES, choose_split
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    is_uri,
    list_folder,
    reading,
    resolve,
)

YAML_EXTENSIONS = (".yaml", ".yml")
IMAGES, LABELS = "images", "labels"
CLASS_FILES = ("classes.txt", "obj.names", "labels/classes.txt")
SPLITS = ("train", "val", "test")

_OTHER_TEXTS = frozenset(("classes.txt", "train.txt", "val.txt", "valid.txt", "test.txt"))
_CACHES = ".cache"  # what a program made of the labels
_LOOKED_AT = 100
_MOST_CONFIGS, _MOST_CONFIG_BYTES = 10, 1 << 20
_SHARES = (1.0, 1.0)
_VALUES = 4
_CORNERS = 6  # of the smallest outline


def is_yolo_file(place: StoredPath) -> bool:
    """Whether a file says which classes and splits a dataset has."""
    if not place.name.lower().endswith(YAML_EXTENSIONS):
        return False
    return bool(_read_config(place))


def is_yolo(place: StoredPath, entries: list[Entry]) -> bool:
    """Whether a folder has images with boxes in text files."""
    if _find_config(place, entries) is not None:
        return True
    names = {name: is_dir for name, is_dir, _ in entries}
    if "obj.names" in names or (names.get(IMAGES) and "classes.txt" in names):
        return True
    return bool(names.get(IMAGES) and names.get(LABELS)) and _has_text(place.join(LABELS))


def _has_text(folder: StoredPath) -> bool:
    """Whether a text is in a folder, or in the folders of it."""
    try:
        entries = list_folder(folder, _LOOKED_AT)
        folders = [folder.join(name) for name, is_dir, _ in entries if is_dir]
        below = [list_folder(each, _LOOKED_AT) for each in folders[:_LOOKED_AT]]
    except OSError:
        return False
    return any(name.endswith(".txt") for each in (entries, *below) for name, _, _ in each)


def _find_config(place: StoredPath, entries: list[Entry]) -> StoredPath | None:
    files = [name for name, is_dir, _ in sorted(entries) if not is_dir]
    files.sort(key=lambda name: name != "data.yaml")
    found = [place.join(name) for name in files if name.lower().endswith(YAML_EXTENSIONS)]
    return next(filter(is_yolo_file, found[:_MOST_CONFIGS]), None)


def _read_config(place: StoredPath) -> dict[str, Any]:
    """What `data.yaml` says; nothing where it is no such file."""
    data = read_or_reason(place, _MOST_CONFIG_BYTES)
    if isinstance(data, str):
        return {}
    try:
        config = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    is_config = isinstance(config, dict) and "names" in config and {*SPLITS} & {*config}
    # Aliases can make a short file a list of any size, once it is written out.
    return config if is_config and all(map(_is_flat, config.values())) else {}


def _is_flat(value: object) -> bool:
    """Whether a value is a scalar, or holds scalars alone."""
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    parts = parts if isinstance(parts, list) else [parts]
    return not any(isinstance(each, list | dict | set) for each in parts)


@dataclass(frozen=True)
class YoloSplit:
    """The images of a split and their texts, by paths below the root.

    Attributes:
        classes: Name of each class by its number; None where nothing names them.
        images: Bytes of each image.
        texts: The text of each image that has one.
        others: Texts without an image.
        has_keypoints: Whether lines end with points that are no outline.
    """

    root: StoredPath
    config: StoredPath | None
    classes: Mapping[int, str] | None
    images: Mapping[str, int]
    texts: Mapping[str, str]
    others: Sequence[str] = ()
    has_keypoints: bool = False


def open_yolo(location: str, options: DatasetOptions) -> Dataset:
    """Opens the folder of a dataset, or its `data.yaml`."""
    check_options(options, "boxes in YOLO's format")
    split = find_split(location, options)
    every = read_lines(split, keeps_outlines=options.outlines)
    lines = list(within_limits(every, options, location))
    classes = _classes(split, lines)
    labels = {number: label for label, number in enumerate(classes)}
    boxes = Boxes()
    places = dict[str, int]()
    for name, size in split.images.items():
        places[name] = len(boxes.images)
        opener = partial(open_image, split.root.join(name))
        boxes.images.append(BoxedImage(name, opener, _SHARES, size))
    for line in lines:
        if line.image is not None:
            boxes.annotated.add(places[line.image])
        if line.image is None or line.problem is not None:
            name = f"{line.image or line.text}" + (f"#{line.row}" if line.row else "")
            boxes.skip(name, str(line.problem))
            continue
        unknown = f"there is no class {line.number} among the {len(classes)} of the dataset"
        label = labels.get(-1 if line.number is None else line.number, unknown)
        boxes.add(places[line.image], str(line.row), label, line.sides, line.polygons)
    names = list(classes.values())
    return build_boxes(location, options, names, boxes, partial(_revise, location, options))


def _classes(split: YoloSplit, lines: Sequence["Line"]) -> Mapping[int, str]:
    """Name of each class by its number, which it is called where nothing names it."""
    if split.classes is not None:
        return split.classes
    numbers = {line.number for line in lines if line.number is not None and line.number >= 0}
    return {number: str(number) for number in sorted(numbers)}


def find_split(location: str, options: DatasetOptions) -> YoloSplit:
    """The files of a dataset, or of the split that is chosen of it."""
    place = resolve(location, options.boundary)
    if is_folder(place, location):
        with reading(repr(location), "listed"):
            root, entries = next(each for each in nested(place) if is_yolo(*each))
        config_place = _find_config(root, entries)
    else:
        root, config_place = place.parent, place
    config = {} if config_place is None else _read_config(config_place)
    if config_place is not None and not config:
        raise DatasetError(f"{location!r} names no classes and splits", parameter="location")
    names = _class_names(root, config)
    if config:
        images, is_whole = _configured_images(root, config, location, options.split)
    else:
        images, is_whole = _images_without_config(root, location, options.split), True
    texts, others = _find_texts(root, images)
    return YoloSplit(
        root, config_place, names, images, texts, others if is_whole else (), "kpt_shape" in config
    )


def _class_names(root: StoredPath, config: Mapping[str, Any]) -> dict[int, str] | None:
    names = config.get("names")
    if isinstance(names, list):
        return {number: str(name) for number, name in enumerate(names)}
    if isinstance(names, dict):
        try:
            pairs = {int(number): str(name) for number, name in names.items()}
        except (TypeError, ValueError):
            raise DatasetError(
                f"the classes of data.yaml have the numbers {[*names][:5]}"
            ) from None
        return dict(sorted(pairs.items()))
    for file in CLASS_FILES:
        data = read_or_reason(root.join(file))
        if isinstance(data, bytes):
            lines = data.decode(errors="replace").splitlines()
            return {number: line.strip() for number, line in enumerate(lines) if line.strip()}
    return None


def _configured_images(
    root: StoredPath, config: Mapping[str, Any], location: str, split: str | None
) -> tuple[dict[str, int], bool]:
    """Images of a split of `data.yaml`, and whether they are whole folders."""
    splits = {name: config[name] for name in SPLITS if config.get(name)}
    if split is None and len({str(entry) for entry in splits.values()}) == 1:
        split = next(iter(splits))
    chosen = choose_split(list(splits), split, location)
    entry = splits[chosen]
    images, is_whole = dict[str, int](), True
    for each in entry if isinstance(entry, list) else [entry]:
        folder = _find_entry(root, str(config.get("path") or ""), str(each))
        if folder.lower().endswith(".txt"):
            images |= _listed_images(root, folder)
            is_whole = False
        else:
            images |= _images_below(root, folder)
    if not images:
        raise DatasetError(
            f"the split {chosen!r} of {location!r} has no images",
            f"correct its folder {entry!r} in data.yaml",
            parameter="location",
        )
    return images, is_whole


def _find_entry(root: StoredPath, base: str, entry: str) -> str:
    """The path below the root of a folder or list of images, wherever the dataset was made."""
    inside = entry
    while inside.startswith(("../", "./")):
        inside = inside.partition("/")[2]
    name = posixpath.basename(root.path)
    candidates = [posixpath.join(base, entry), entry, inside]
    # An absolute path of another machine ends as the path here does.
    parts = posixpath.join(base, entry).split("/")
    candidates += ["/".join(parts[place + 1 :]) for place, part in enumerate(parts) if part == name]
    for candidate in candidates:
        path = candidate
        if posixpath.isabs(path):
            path = posixpath.relpath(path, root.path) if root.is_local else path
        path = posixpath.normpath(path)
        if path.startswith("..") or posixpath.isabs(path) or is_uri(path):
            continue
        place = root.join(path)
        if place.is_inside and is_folder(place, path) is not None:
            return "" if path == "." else path
    raise DatasetError(
        f"data.yaml names {entry!r}, and nothing is there below its folder",
        "put data.yaml into the folder of the dataset, with paths from there",
        parameter="location",
    )


def _images_below(root: StoredPath, folder: str) -> dict[str, int]:
    files = walk(root, folder)
    return {name: size for name, size in files.items() if has_image_extension(name)}


def _listed_images(root: StoredPath, file: str) -> dict[str, int]:
    """Images of a list, whose paths are from its folder, from the root, or of another machine."""
    lines = read_file(root.join(file)).decode(errors="replace").splitlines()
    known = _images_below(root, "")
    found = dict[str, int]()
    for line in filter(None, map(str.strip, lines)):
        path = posixpath.normpath(line.removeprefix("./"))
        parts = path.split("/")
        ends = ("/".join(parts[place:]) for place in range(len(parts)))
        inside = [posixpath.normpath(posixpath.join(posixpath.dirname(file), path)), *ends]
        name = next((each for each in inside if each in known), path)
        found[name] = known.get(name, 0)
    return found


def _images_without_config(root: StoredPath, location: str, split: str | None) -> dict[str, int]:
    images = _images_below(root, "")
    if not images:
        raise DatasetError(f"{location!r} has no images", parameter="location")
    splits = sorted({name for name in map(_split_of, images) if name is not None})
    if split is None and len(splits) <= 1:
        return images
    chosen = choose_split(splits, split, location)
    return {name: size for name, size in images.items() if _split_of(name) == chosen}


def _split_of(name: str) -> str | None:
    """The folder of a split that a path is in; None where there is none."""
    folders = name.split("/")[:-1]
    return next((each for each in folders if each.lower() in SPLIT_NAMES), None)


def text_of(image: str) -> str:
    """The path of the text of an image."""
    stem = posixpath.splitext(image)[0]
    above, slash, name = f"/{stem}".rpartition(f"/{IMAGES}/")
    return f"{above}/{LABELS}/{name}.txt".lstrip("/") if slash else f"{stem}.txt"


def _find_texts(root: StoredPath, images: Mapping[str, int]) -> tuple[dict[str, str], list[str]]:
    """The text of each image that has one, and texts that belong to no image."""
    there = set[str]()
    for folder in sorted({posixpath.dirname(text_of(image)) for image in images}):
        try:
            entries = list_folder(root.join(folder) if folder else root)
        except OSError:
            continue
        there |= {
            posixpath.join(folder, name)
            for name, is_dir, _ in entries
            if not is_dir and name.endswith(".txt") and name not in _OTHER_TEXTS and name[0] != "."
        }
    texts = {image: text_of(image) for image in images if text_of(image) in there}
    return texts, sorted(there.difference(texts.values()))


@dataclass(frozen=True)
class Line:
    """A line of a text that is not blank, or what is wrong with it or with the text.

    Attributes:
        row: Number of the line, counted from 1; 0 for the text as a whole.
        number: Number of its class.
    """

    text: str
    image: str | None
    row: int = 0
    number: int | None = None
    sides: Sequence[object] = field(default=())
    problem: str | None = None
    polygons: Sequence[Sequence[float]] = ()


def read_lines(split: YoloSplit, *, keeps_outlines: bool = False) -> Iterator[Line]:
    """The lines of the texts of a split."""
    for text in split.others:
        yield Line(text, None, problem="no image has the name of this text")
    contents = read_files([split.root.join(text) for text in split.texts.values()])
    for (image, text), data in zip(split.texts.items(), contents, strict=True):
        if isinstance(data, str):
            yield Line(text, image, problem=f"its boxes cannot be read: the text {data}")
            continue
        for row, line in enumerate(data.splitlines(), 1):
            parts = line.decode(errors="replace").split()
            if parts:
                parsed = _parse(Line(text, image, row), parts, has_keypoints=split.has_keypoints)
                yield parsed if keeps_outlines else replace(parsed, polygons=())


def _parse(line: Line, parts: Sequence[str], *, has_keypoints: bool) -> Line:
    try:
        number, *values = map(float, parts)
    except ValueError:
        return _wrong(line, "its line has other words than numbers")
    if not number.is_integer():
        return _wrong(line, f"its class {parts[0]!r} is no whole number")
    if len(values) in {_VALUES, _VALUES + 1} or (has_keypoints and len(values) > _VALUES):
        x, y, width, height = values[:_VALUES]  # a fifth one is the confidence of a detector
        sides, polygons = (x - width / 2, y - height / 2, x + width / 2, y + height / 2), []
    elif len(values) >= _CORNERS and len(values) % 2 == 0:
        across, down = values[::2], values[1::2]
        sides, polygons = (min(across), min(down), max(across), max(down)), [values]
    else:
        return _wrong(line, f"its line has {len(values)} numbers after the class, not 4")
    return Line(line.text, line.image, line.row, int(number), sides, None, polygons)


def _wrong(line: Line, problem: str) -> Line:
    return Line(line.text, line.image, line.row, problem=problem)


def _revise(location: str, options: DatasetOptions, changes: Mapping[str, str | None]) -> Revision:
    """The same texts but for the lines that have another class or are gone."""
    split = find_split(location, options)
    lines = list(read_lines(split))
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
        kept = read_file(split.root.join(text)).splitlines(keepends=True)
        for row, label in changes_of_text.items():
            number = b"" if label is None else str(numbers[label]).encode()
            kept[row - 1] = re.sub(rb"\S+", number, kept[row - 1], count=1) if number else b""
        changed[text] = b"".join(kept)
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
    """The file that names the classes, with new ones, and without the path to the original."""
    if split.config is not None:
        data = read_file(split.config).decode()
        edits, warnings = _config_edits(data, classes, added)
        new = edited(data, edits).encode()
        return ({split.config.name: new} if edits else {}), warnings
    if not added:
        return {}, []
    for file in CLASS_FILES:
        named = read_or_reason(split.root.join(file))
        if isinstance(named, bytes):
            lines = "".join(f"{name}\n" for name in added)
            return {file: named.rstrip(b"\r\n") + b"\n" + lines.encode()}, []
    raise CleaningError(
        f"there is no class {added[0]!r}, and the dataset has numbers in place of names",
        "write them into classes.txt, one a line, and score it again",
        parameter="marks",
    )


def _config_edits(
    text: str, classes: Mapping[int, str], added: Sequence[str]
) -> tuple[list[tuple[int, int, str]], list[str]]:
    nodes = {key.value: value for key, value in yaml.compose(text, yaml.SafeLoader).value}
    edits, warnings = list[tuple[int, int, str]](), list[str]()
    base = nodes.get("path")
    if base is not None and base.value not in {"", ".", "null", "~"}:
        edits.append((base.start_mark.index, base.end_mark.index, '""'))
        warnings.append(
            f"path in data.yaml was {base.value!r} and is empty now, so that other paths are from "
            "the folder of the file and not from that of the original dataset"
        )
    if not added:
        return edits, warnings
    names = nodes["names"]
    is_list = isinstance(names, yaml.SequenceNode)
    first = max(classes, default=-1) + 1
    quoted = [json.dumps(name, ensure_ascii=False) for name in added]
    items = quoted if is_list else [f"{first + place}: {each}" for place, each in enumerate(quoted)]
    last = names.value[-1] if is_list else names.value[-1][1]
    between = f"\n{' ' * names.start_mark.column}{'- ' if is_list else ''}"
    new = "".join((", " if names.flow_style else between) + item for item in items)
    edits.append((last.end_mark.index, last.end_mark.index, new))
    if (count := nodes.get("nc")) is not None:
        edits.append((count.start_mark.index, count.end_mark.index, str(first + len(added))))
    return edits, warnings
