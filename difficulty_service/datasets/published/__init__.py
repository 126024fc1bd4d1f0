"""Datasets of research in the files in which their authors publish them; one file per dataset.

Of the options, the split, the limit and the shard size apply. Opening one raises DatasetError where
a file is missing, damaged or not as published, or there are several splits and none is chosen.
"""

from collections.abc import Callable

from difficulty_service.datasets.published.cifar import (
    TAR_FOLDER,
    is_cifar,
    is_cifar_file,
    open_cifar,
)
from difficulty_service.datasets.published.cifar_c import EXTENSION, is_cifar_c, open_cifar_c
from difficulty_service.datasets.published.idx import is_idx, open_idx
from difficulty_service.datasets.published.imagenet import (
    is_imagenet_validation,
    open_imagenet_validation,
)
from difficulty_service.datasets.published.svhn import is_svhn, open_svhn
from difficulty_service.datasets.published.tiny_imagenet import is_tiny_imagenet, open_tiny_imagenet
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.storage import Entry, StoredPath, list_folder
from difficulty_service.datasets.tar_files import TAR_ERRORS, TAR_EXTENSIONS, open_tar, read_headers

PUBLISHED_DATASETS: dict[str, Callable[[str, DatasetOptions], Dataset]] = {
    "cifar": open_cifar,
    "cifar-c": open_cifar_c,
    "svhn": open_svhn,
    "idx": open_idx,
    "tiny-imagenet": open_tiny_imagenet,
    "imagenet-validation": open_imagenet_validation,
}


_BY_NAMES = {"cifar": is_cifar, "cifar-c": is_cifar_c, "svhn": is_svhn, "idx": is_idx}


def kind_of_published_folder(
    place: StoredPath, entries: list[Entry], split: str | None
) -> str | None:
    """The kind of published dataset in a folder; None if there is none."""
    files = {name for name, is_dir, _ in entries if not is_dir}
    for kind, is_kind in _BY_NAMES.items():
        if is_kind(files):
            return kind
    if is_tiny_imagenet(place, entries):
        return "tiny-imagenet"
    return "imagenet-validation" if is_imagenet_validation(place, entries, split) else None


def kind_of_published_file(place: StoredPath) -> str | None:
    """The kind of published dataset in a file; None if it is of none."""
    name = place.name
    if name.lower().endswith(TAR_EXTENSIONS):
        return "cifar" if _is_cifar_tar(place) else None
    if name.endswith(EXTENSION):
        return "cifar-c"
    if is_cifar_file(name) and is_cifar(_names_beside(place)):
        return "cifar"
    return next((kind for kind in ("svhn", "idx") if _BY_NAMES[kind]({name})), None)


def _names_beside(place: StoredPath) -> set[str]:
    """The names of the files in the folder of a file; none if it cannot be listed."""
    try:
        return {name for name, is_dir, _ in list_folder(place.parent) if not is_dir}
    except (OSError, ValueError):
        return set()


def _is_cifar_tar(place: StoredPath) -> bool:
    try:
        with open_tar(place) as archive:
            first = next(read_headers(archive), None)
    except TAR_ERRORS:
        return False
    return first is not None and TAR_FOLDER.match(first.name) is not None
