"""The images of a split of YOLO: by `data.yaml`, `obj.data`, folders such as `valid`, or lists."""

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import count_of, list_names
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.objects.files import read_file, read_start, walk, without_mark
from difficulty_service.datasets.objects.yolo_config import YoloConfig
from difficulty_service.datasets.objects.yolo_texts import EXTENSION, SHOWN_BYTES, is_list
from difficulty_service.datasets.sample import Skipped
from difficulty_service.datasets.splits import choose_split, split_folders
from difficulty_service.datasets.storage import StoredPath, is_folder, is_uri, list_folder


@dataclass
class SplitImages:
    """Images of a split.

    Attributes:
        found: Bytes of each by its path below the root.
        is_whole: Whether they are all images of their folders.
        skipped: What a list names and is not there.
        notes: What to know of the choice, one sentence each.
    """

    found: dict[str, int] = field(default_factory=dict)
    is_whole: bool = True
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def images_of_split(
    root: StoredPath, config: YoloConfig | None, location: str, split: str | None
) -> SplitImages:
    """The images of the split that is chosen, or all where there are none."""
    if config is not None and config.splits and not config.is_darknet:
        return _configured(root, config, location, split)
    known = _images_below(root, "")
    if not known:
        raise DatasetError.of_location(f"{location!r} has no images", "put them beside their texts")
    lists = _darknet_lists(root, config) if config is not None and config.is_darknet else {}
    folders = {} if lists else _split_folders_of(known)
    if not folders:
        lists = lists or _lists_beside(root)
    splits = sorted({each for each in folders.values() if each is not None}) or [*lists]
    if lists:
        same = len({tuple(_lines(root, file)) for file in lists.values()}) == 1
        chosen = choose_split(splits, splits[0] if same and split is None else split, location)
        return _listed(root, lists[chosen], known, lists.values())
    if split is None and len(splits) <= 1:
        return SplitImages(known)
    chosen = choose_split(splits, split, location)
    found = {name: size for name, size in known.items() if folders[name] == chosen}
    left = sum(each is None for each in folders.values())
    note = f"{count_of(left, 'image')} in no folder of a split: not read"
    return SplitImages(found, notes=[note] if left else [])


def _configured(
    root: StoredPath, config: YoloConfig, location: str, split: str | None
) -> SplitImages:
    """Images of a split of a YAML file."""
    splits = config.splits
    if split is None and len({tuple(entry) for entry in splits.values()}) == 1:
        split = next(iter(splits))
    chosen = choose_split(list(splits), split, location)
    images, known = SplitImages(), dict[str, int]()
    for each in splits[chosen]:
        folder = _find_entry(root, config, each)
        if folder.lower().endswith(EXTENSION):
            known = known or _images_below(root, "")
            listed = _listed(root, folder, known)
            images.found |= listed.found
            images.skipped += listed.skipped
            images.is_whole = False
        else:
            images.found |= _images_below(root, folder)
    if not images.found:
        raise DatasetError.of_location(
            f"the split {chosen!r} of {location!r} has no images",
            f"correct its folder {list_names(splits[chosen])!r} in {config.place.name}",
        )
    return images


def _find_entry(root: StoredPath, config: YoloConfig, entry: str) -> str:
    """The path below the root of a folder or list of images, wherever the dataset was made."""
    inside = entry.replace("\\", "/")
    while inside.startswith(("../", "./")):
        inside = inside.partition("/")[2]
    name = posixpath.basename(root.path)
    whole = posixpath.join(config.base, entry).replace("\\", "/")
    candidates = [whole, entry.replace("\\", "/"), inside]
    # An absolute path of another machine ends as the path here does.
    parts = whole.split("/")
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
    raise DatasetError.of_location(
        f"{config.place.name} names {entry!r}, and nothing is there below its folder",
        f"put {config.place.name} into the folder of the dataset, with paths from there",
    )


def _images_below(root: StoredPath, folder: str) -> dict[str, int]:
    files = walk(root, folder)
    return {name: size for name, size in files.items() if has_image_extension(name)}


def _lines(root: StoredPath, file: str) -> list[str]:
    """The lines of a list that are not blank."""
    lines = without_mark(read_file(root.join(file))).decode(errors="replace").splitlines()
    return [line.replace("\\", "/") for line in map(str.strip, lines) if line]


def _listed(
    root: StoredPath, file: str, known: Mapping[str, int], beside: Collection[str] = ()
) -> SplitImages:
    """Images of a list, whose paths are from its folder, from the root, or of another machine.

    Args:
        known: Bytes of each image below the root.
        beside: The lists of all splits, where images that are in none of them are counted.
    """
    images = SplitImages(is_whole=False)
    for path, name in _found(root, file, known):
        if name is None:
            reason = f"it is in {file!r}, and no such image is there"
            images.skipped.append((path, reason))
        else:
            images.found[name] = known.get(name, 0)
    if not images.found:
        raise DatasetError.of_location(
            f"none of the images in {file!r} is there",
            "put them below its folder, under the same names",
        )
    named = {name for each in beside for _, name in _found(root, each, known)}
    left = len(known.keys() - named) if beside else 0
    if left:
        images.notes.append(
            f"{count_of(left, 'image')} in no list ({list_names([*beside])}): not read"
        )
    return images


def _found(
    root: StoredPath, file: str, known: Mapping[str, int]
) -> Iterator[tuple[str, str | None]]:
    """Each path in a list, and the image that it is; None where there is none."""
    for line in _lines(root, file):
        path = posixpath.normpath(line.removeprefix("./"))
        parts = path.split("/")
        ends = ("/".join(parts[place:]) for place in range(len(parts)))
        inside = [posixpath.normpath(posixpath.join(posixpath.dirname(file), path)), *ends]
        name = next((each for each in inside if each in known), None)
        yield path, path if name is None and _is_elsewhere(root, path) else name


def _is_elsewhere(root: StoredPath, path: str) -> bool:
    """Whether an absolute path is that of a file."""
    try:
        return posixpath.isabs(path) and is_folder(root.join(path), path) is False
    except DatasetError:  # outside of the boundary
        return False


def _darknet_lists(root: StoredPath, config: YoloConfig) -> dict[str, str]:
    """The list of each split that `obj.data` names, where it is below the root."""
    found = {split: find_below(root, entry) for split, (entry, *_) in config.splits.items()}
    return {split: path for split, path in found.items() if path is not None}


def find_below(root: StoredPath, entry: str) -> str | None:
    """The file at the end of a path that may be of another machine."""
    parts = entry.replace("\\", "/").removeprefix("./").split("/")
    for place in range(len(parts)):
        path = posixpath.normpath("/".join(parts[place:]))
        if path.startswith(("..", "/")):
            continue
        there = root.join(path)
        if there.is_inside and is_folder(there, path) is False:
            return path
    return None


def _lists_beside(root: StoredPath) -> dict[str, str]:
    """Texts such as `train.txt` whose lines are paths of images."""
    names = [name for name, is_dir, _ in list_folder(root) if not is_dir]
    stems = {name.removesuffix(EXTENSION): name for name in names if name.endswith(EXTENSION)}
    found = dict[str, str]()
    for stem in sorted(split_folders(stems)):
        if is_list(read_start(root.join(stems[stem]), SHOWN_BYTES)):
            found[stem] = stems[stem]
    return found


def _split_folders_of(images: Iterable[str]) -> dict[str, str | None]:
    """The folder of a split that each image is in; nothing where there are no such folders."""
    folders = {image: posixpath.dirname(image) for image in images}
    children = defaultdict[str, set[str]](set)
    for folder in set(folders.values()):
        for above, name in _steps(folder):
            children[above].add(name)
    splits = {above: split_folders(names) for above, names in children.items()}
    of_folder = {
        folder: next((name for above, name in _steps(folder) if name in splits[above]), None)
        for folder in set(folders.values())
    }
    found = {image: of_folder[folder] for image, folder in folders.items()}
    return found if any(found.values()) else {}


def _steps(folder: str) -> Sequence[tuple[str, str]]:
    """Each folder of a path, with the path above it, from the top."""
    parts = folder.split("/") if folder else []
    return [("/".join(parts[:place]), part) for place, part in enumerate(parts)]
