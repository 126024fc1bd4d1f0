"""Detection of the kind of dataset at a location."""

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.archive import ZIP_EXTENSION, holds_plain_images
from difficulty_service.datasets.class_folders import visible
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.memory import find_plugin
from difficulty_service.datasets.objects import kind_of_object_file, kind_of_object_folder
from difficulty_service.datasets.published import kind_of_published_file, kind_of_published_folder
from difficulty_service.datasets.storage import Boundary, is_folder, list_folder, reading, resolve
from difficulty_service.datasets.table_files import NAMED_EXTENSIONS, TABLE_EXTENSIONS
from difficulty_service.datasets.tar_files import TAR_EXTENSIONS

HUB_PREFIX = "hf:"

_REMEDIES = {
    (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst"): "pack it again as .zip or .tar",
    (".rar", ".7z"): "unpack it and name the folder, or pack it again as .zip",
    (".gz", ".bz2", ".xz", ".zst"): "unpack it first",
    (".json",): "write one object in each line, as JSON Lines, and end the name in .jsonl",
    (".xls", ".xlsb", ".ods", ".numbers"): "save it as .xlsx or CSV",
    (".feather", ".arrow", ".ipc", ".orc", ".avro", ".tfrecord"): "write it as Parquet",
    (".npy", ".npz", ".pkl", ".pickle", ".pt", ".pth", ".h5", ".hdf5", ".mat"): (
        "write the images into a folder per class, or load the arrays in Python and call "
        "`difficulty_service.score_dataset(images, labels)`"
    ),
}
"""What to do with files whose names have these endings."""

_SAVED_TO_DISK = ({"dataset_dict.json"}, {"dataset_info.json", "state.json"})


def detect_kind(location: str, boundary: Boundary | None = None, split: str | None = None) -> str:
    """Detects the kind of dataset by the prefix of its location, its files or their extensions."""
    of_prefix = _kind_of_prefix(location)
    if of_prefix is not None:
        return of_prefix
    place = resolve(location, boundary)
    if is_folder(place, location):
        with reading(repr(location), "listed"):
            entries = list_folder(place)
        published = kind_of_published_folder(place, entries, split)
        kind = published or kind_of_object_folder(place, entries)
        return kind or _kind_of_folder(entries, location)
    files = find_files(location, boundary)
    names = [file.place.name for file in files]
    if len(files) == 1:
        place = files[0].place
        of_one = kind_of_published_file(place) or kind_of_object_file(place)
        if of_one is not None:
            return of_one
    if all(name.lower().endswith(ZIP_EXTENSION) for name in names):
        return "archive"
    kind = _kind_of_files(names, location)
    if kind is None:
        _refuse_with_remedy(names[0], location)
        raise DatasetError(
            f"{location!r} is not a dataset that can be read, for example {names[0]!r}",
            f"expected a folder of class folders, or files ending in {', '.join(_ALL_EXTENSIONS)}",
            parameter="location",
        )
    # Several tars are shards of samples with labels; a single one may be a packed folder.
    if kind == "webdataset" and len(files) == 1 and holds_plain_images(files[0].place):
        return "archive"
    return kind


def _refuse_with_remedy(name: str, location: str) -> None:
    """Refuses a file of a format that people bring and that is not read."""
    for endings, remedy in _REMEDIES.items():
        if name.lower().endswith(endings):
            raise DatasetError(
                f"{location!r} is not read as a dataset", remedy, parameter="location"
            )


def _kind_of_prefix(location: str) -> str | None:
    if location.startswith(HUB_PREFIX) and not location.startswith(f"{HUB_PREFIX}//"):
        return "hugging-face"
    return None if find_plugin(location) is None else "plug-in"


_EXTENSIONS = TABLE_EXTENSIONS + TAR_EXTENSIONS
_ALL_EXTENSIONS = (*NAMED_EXTENSIONS, *TAR_EXTENSIONS, ZIP_EXTENSION)


def _kind_of_folder(entries: list[tuple[str, bool, int]], location: str) -> str:
    names = {name for name, _, _ in entries}
    if any(marks <= names for marks in _SAVED_TO_DISK):
        return "hugging-face"
    seen = visible(entries)
    if any(folder for _, folder, _ in seen):
        return "image-folder"
    known = [name for name, _, _ in seen if name.lower().endswith(_EXTENSIONS)]
    return _kind_of_files(known, location) or "image-folder"


def _kind_of_files(names: list[str], location: str) -> str | None:
    """The kind of all files; None if one is of no known kind or there are no files."""
    tables = [name for name in names if name.lower().endswith(NAMED_EXTENSIONS)]
    tars = [name for name in names if name.lower().endswith(TAR_EXTENSIONS)]
    if tables and tars:
        raise DatasetError(
            f"{location!r} holds tables ({tables[0]!r}) and tars ({tars[0]!r})",
            "choose one kind by a glob such as '*.parquet'",
            parameter="location",
        )
    if not names or len(tables) + len(tars) < len(names):
        return None
    return "table" if tables else "webdataset"
