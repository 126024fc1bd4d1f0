"""The files of a dataset of YOLO: images of a split, their texts, and what names the classes."""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.objects.files import find_folder, read_or_reason, without_mark
from difficulty_service.datasets.objects.yolo_config import (
    DARKNET,
    YoloConfig,
    read_config,
    read_darknet,
)
from difficulty_service.datasets.objects.yolo_images import (
    SplitImages,
    find_below,
    images_of_split,
)
from difficulty_service.datasets.objects.yolo_kind import find_configs, find_darknet, is_yolo
from difficulty_service.datasets.objects.yolo_lines import is_label_text
from difficulty_service.datasets.objects.yolo_texts import Texts, find_texts
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.storage import StoredPath, is_folder, list_folder, reading, resolve

CLASS_FILES = ("classes.txt", "obj.names", "_darknet.labels")
"""Files that name the classes, one a line, in the folder of the dataset or beside the texts."""

NAMES = ".names"


@dataclass(frozen=True)
class YoloSplit:
    """The images of a split and their texts, by paths below the root.

    Attributes:
        config: The YAML file that says something about the dataset.
        classes: Name of each class by its number; None where nothing names them.
        classes_file: The file that names them, one a line; None where it is the YAML file.
    """

    root: StoredPath
    config: YoloConfig | None
    classes: Mapping[int, str] | None
    classes_file: str | None
    images: SplitImages
    texts: Texts

    @property
    def others(self) -> Sequence[str]:
        """Texts that belong to no image, where all images of their folders are in the split."""
        return self.texts.others if self.images.is_whole else ()

    @property
    def has_keypoints(self) -> bool:
        """Whether lines end with points that are no outline."""
        return self.config is not None and self.config.has_keypoints


def find_split(location: str, options: DatasetOptions) -> YoloSplit:
    """The files of a dataset, or of the split that is chosen of it."""
    place = resolve(location, options.boundary)
    if is_folder(place, location):
        root, entries, _ = find_folder(place, location, is_yolo)
        with reading(repr(location), "listed"):
            config = next(iter(find_configs(root, entries)), None) or find_darknet(root, entries)
    else:
        root = place.parent
        is_darknet = place.name.lower().endswith(DARKNET)
        config = read_darknet(place) if is_darknet else read_config(place)
        config = f"{place.name!r} {config}" if isinstance(config, str) else config
    if isinstance(config, str):
        raise DatasetError.of_location(config, "correct it, or take it out of the folder")
    images = images_of_split(root, config, location, options.split)
    texts = find_texts(root, images.found)
    classes, file = _classes(root, config, texts, images.found)
    return YoloSplit(root, config, classes, file, images, texts)


def _classes(
    root: StoredPath, config: YoloConfig | None, texts: Texts, images: Iterable[str]
) -> tuple[Mapping[int, str] | None, str | None]:
    """Names of the classes, and the file that has them where it is no YAML."""
    if config is not None and config.names is not None:
        return config.names, None
    if config is not None and config.names_file is not None:
        file = find_below(root, config.names_file)
        names = None if file is None else _names_in(root, file)
        if names is not None:
            return names, file
    folders = {posixpath.dirname(each) for each in (*texts.of_images.values(), *images)}
    files = [posixpath.join(each, name) for each in ("", "labels") for name in CLASS_FILES]
    files += [name for name, is_dir, _ in list_folder(root) if not is_dir and name.endswith(NAMES)]
    files += [posixpath.join(each, name) for each in sorted(folders) for name in CLASS_FILES]
    found = {file: names for file in files if (names := _names_in(root, file)) is not None}
    different = {repr(names): file for file, names in reversed(found.items())}
    if len(different) > 1:
        first, second, *_ = sorted(different.values())
        raise DatasetError.of_location(
            f"{first!r} and {second!r} name the classes differently",
            "take the one that is not about these boxes out of the folder",
        )
    if found:
        file, names = next(iter(found.items()))
        return names, file
    number = None if config is None else config.number
    # As Ultralytics calls them.
    return (None if number is None else {each: f"class_{each}" for each in range(number)}), None


def _names_in(root: StoredPath, file: str) -> dict[int, str] | None:
    """The lines of a file that names classes; None where it is none."""
    data = read_or_reason(root.join(file))
    if isinstance(data, str) or is_label_text(data):
        return None
    lines = without_mark(data).decode(errors="replace").splitlines()
    return {number: line.strip() for number, line in enumerate(lines) if line.strip()}
