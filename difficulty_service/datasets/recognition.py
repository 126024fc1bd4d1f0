"""What a location holds: each kind of dataset says whether it would read it, and why not.

One kind is meant, or a person is asked: where two say yes, where the folders are splits, or where
much would be left unread. Nothing is decoded to find out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.dataset_formats import DATASET_FORMATS
from difficulty_service.datasets.archive import ZIP_EXTENSION, holds_plain_images
from difficulty_service.datasets.file_search import find_files
from difficulty_service.datasets.folder_contents import refuse_field
from difficulty_service.datasets.folder_tree import visible
from difficulty_service.datasets.hugging_face import HUB_PREFIX
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.memory import find_plugin
from difficulty_service.datasets.objects import GIVE_WAY, OBJECT_FORMATS, ObjectFormat
from difficulty_service.datasets.objects.box_table import is_box_table
from difficulty_service.datasets.objects.files import nested
from difficulty_service.datasets.published import (
    kind_of_published_file,
    kind_of_published_folder,
)
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.splits import match_split
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    list_folder,
    location_below,
    reading,
    resolve,
)
from difficulty_service.datasets.table_files import NAMED_EXTENSIONS, TABLE_EXTENSIONS
from difficulty_service.datasets.tar_files import TAR_EXTENSIONS

_NEEDS = {
    "yolo": "data.yaml, obj.names, or images/ with labels/ or classes.txt",
    "coco": "JSON with the lists images, annotations and categories, alone or in annotations/",
    "voc": "XML files that begin with <annotation>",
    "label-studio": "JSON that is a list of tasks with regions",
    "cvat": "XML that begins with <annotations>, and has <version> or <image>",
    "labelme": "JSON with the keys shapes and imagePath, for each image",
    "supervisely": "JSON with the keys objects and size, for each image, in ann/ beside img/",
    "createml": "JSON that is a list of images with annotations and their coordinates",
    "box-table": "columns with images and x_min, y_min, x_max and y_max, or their like",
    "hugging-face": "dataset_dict.json, or dataset_info.json and state.json",
    "table": f"files that end in {', '.join(TABLE_EXTENSIONS)}, and no folders",
    "webdataset": f"files that end in {', '.join(TAR_EXTENSIONS)}, and no folders",
}
"""What a folder of each kind has, and one that is not of it has not."""

_BOX_TABLE = "box-table"

MOST_ENTRIES = 1 << 31
"""Entries of a folder that are looked at; where it is local, without their sizes."""

_SAVED_TO_DISK = ({"dataset_dict.json"}, {"dataset_info.json", "state.json"})

_REMEDIES = {
    (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst"): "pack it again as .zip or .tar",
    (".rar", ".7z"): "unpack it and name the folder, or pack it again as .zip",
    (".gz", ".bz2", ".xz", ".zst"): "unpack it first",
    (".xls", ".xlsb", ".ods", ".numbers"): "save it as .xlsx or CSV",
    (".feather", ".arrow", ".ipc", ".orc", ".avro", ".tfrecord"): "write it as Parquet",
    (".npy", ".npz", ".pkl", ".pickle", ".pt", ".pth", ".h5", ".hdf5", ".mat"): (
        "write the images into a folder per class, or load the arrays in Python and call "
        "`difficulty_service.score_dataset(images, labels)`"
    ),
}
"""What to do with files whose names have these endings."""


@dataclass(frozen=True)
class Verdict:
    """What one kind of dataset says of a location.

    Attributes:
        kind: A key of DATASETS.
        is_it: Whether it would read the location.
        why: What it would read, or what it misses there.
    """

    kind: str
    is_it: bool
    why: str


@dataclass(frozen=True)
class Recognition:
    """The kind of a dataset, and where it is read.

    Attributes:
        location: The location, or a folder in it that is the dataset.
        options: The options that are left for it: a split that is a folder is chosen already.
        verdicts: What each kind said that was asked.
    """

    kind: str
    location: str
    options: DatasetOptions
    verdicts: Sequence[Verdict] = ()


def recognise(location: str, options: DatasetOptions) -> Recognition:
    """Finds out what is at a location.

    Raises:
        DatasetError: Nothing is there that can be read, or a person has to say what is meant.
    """
    if options.format is not None:
        _require_boxes(options.format, location, options)
        return Recognition(options.format, location, options)
    of_prefix = _kind_of_prefix(location)
    if of_prefix is not None:
        return Recognition(of_prefix, location, options)
    place = resolve(location, options.boundary)
    if is_folder(place, location):
        return _of_folder(place, location, options)
    return Recognition(_kind_of_files(location, options), location, options)


def _require_boxes(kind: str, location: str, options: DatasetOptions) -> None:
    """Refuses a location that has no boxes of the format that is asked for."""
    form = OBJECT_FORMATS.get(kind)
    if form is None:
        return
    place = resolve(location, options.boundary)
    folder = is_folder(place, location)
    if folder is None:
        return  # which its reader says
    with reading(repr(location), "listed"):
        is_it = _is_of_format(form, place, list_folder(place)) if folder else form.is_file(place)
    if not is_it:
        raise DatasetError(
            f"{location!r} is not of the format {DATASET_FORMATS[kind]}: it lacks {_NEEDS[kind]}",
            "leave out ",
            Setting("format"),
            ", or name the folder that has it",
            parameter="format",
        )


def detect_kind(location: str, split: str | None = None) -> str:
    """The kind of the dataset at a location of the caller's own."""
    return recognise(location, DatasetOptions(split=split)).kind


def _kind_of_prefix(location: str) -> str | None:
    if location.startswith(HUB_PREFIX) and not location.startswith(f"{HUB_PREFIX}//"):
        return "hugging-face"
    return None if find_plugin(location) is None else "plug-in"


def _of_folder(place: StoredPath, location: str, options: DatasetOptions) -> Recognition:
    with reading(repr(location), "listed"):
        entries = list_folder(place)
    published = kind_of_published_folder(place, entries, options.split)
    if published is not None:
        return Recognition(published, location, options, [_says(published, is_it=True)])
    verdicts = _verdicts(place, entries, location, options)
    kinds = [verdict.kind for verdict in verdicts if verdict.is_it]
    if len(kinds) > 1:
        raise DatasetError(
            f"{location!r} may be {' or '.join(DATASET_FORMATS[kind] for kind in kinds)}",
            "say which by ",
            Setting("format", kinds[0]),
            parameter="format",
        )
    if kinds:
        return Recognition(kinds[0], location, options, verdicts)
    inner = _inner(place, entries, location, options)
    if inner is not None:
        return inner
    folders = Verdict("image-folder", is_it=True, why="no other kind is there")
    return Recognition("image-folder", location, options, [*verdicts, folders])


def _verdicts(
    place: StoredPath, entries: list[Entry], location: str, options: DatasetOptions
) -> list[Verdict]:
    """What each kind of folder says, but for those of class folders, which are what is left."""
    seen = visible(entries)
    names = {name for name, _, _ in entries}
    is_flat = not any(is_dir for _, is_dir, _ in seen)
    known = [name for name, *_ in filter(_is_data, seen)]
    of_files = _kind_by_extension(known, location) if is_flat else None
    answers = {
        **{kind: _is_of_format(form, place, entries) for kind, form in OBJECT_FORMATS.items()},
        "hugging-face": any(marks <= names for marks in _SAVED_TO_DISK),
        "table": of_files == "table",
        "webdataset": of_files == "webdataset",
    }
    answers[_BOX_TABLE] = answers[_BOX_TABLE] and options.text_column is None
    for place_in_order, kind in enumerate(GIVE_WAY):
        later = GIVE_WAY[place_in_order:]
        others = any(answers[each] for each in OBJECT_FORMATS if each not in later)
        answers[kind] = answers[kind] and not others
    answers["table"] = answers["table"] and not answers[_BOX_TABLE]
    return [_says(kind, is_it=is_it) for kind, is_it in answers.items()]


def _says(kind: str, *, is_it: bool) -> Verdict:
    needs = _NEEDS.get(kind, "files that are called as they were published")
    return Verdict(kind, is_it, f"it {'has' if is_it else 'lacks'} {needs}")


def _is_of_format(form: ObjectFormat, place: StoredPath, entries: list[Entry]) -> bool:
    """Whether boxes of a format are in a folder, or in the single folder in it."""
    try:
        return any(form.find(*folder) for folder in nested(place, entries))
    except OSError:
        return False


def _inner(
    place: StoredPath, entries: list[Entry], location: str, options: DatasetOptions
) -> Recognition | None:
    """The dataset in a folder that is chosen as a split, or that is the only one with data.

    A repository of the Hugging Face Hub has its tables in `data`, beside texts about them. Class
    folders are none: the split is part of their ids.
    """
    seen = visible(entries)
    folders = [name for name, is_dir, _ in seen if is_dir]
    chosen = None if options.split is None else match_split(folders, options.split)
    if chosen is None and (len(folders) > 1 or any(map(_is_data, seen))):
        return None
    name = chosen if chosen is not None else next(iter(folders), None)
    below = None if name is None else place.join(name)
    if name is None or below is None or not below.is_inside or not _may_be_dataset(below):
        return None
    left = options if chosen is None else replace(options, split=None)
    found = _of_folder(below, location_below(location, name), left)
    return None if found.kind == "image-folder" else found


def _is_data(entry: Entry) -> bool:
    name, is_dir, _ = entry
    return not is_dir and name.lower().endswith(TABLE_EXTENSIONS + TAR_EXTENSIONS)


def _may_be_dataset(place: StoredPath) -> bool:
    """Whether a folder has anything but images of its own."""
    try:
        entries = visible(list_folder(place, MOST_ENTRIES))
    except OSError:
        return False
    return any(is_dir or not has_image_extension(name) for name, is_dir, _ in entries)


def _kind_of_files(location: str, options: DatasetOptions) -> str:
    files = find_files(location, options.boundary)
    names = [file.place.name for file in files]
    if len(files) == 1:
        of_one = kind_of_published_file(files[0].place) or _of_boxes(files[0].place)
        if of_one is not None:
            return of_one
    if all(name.lower().endswith(ZIP_EXTENSION) for name in names):
        return "archive"
    kind = _kind_by_extension(names, location)
    if kind is None:
        _refuse_with_remedy(names[0], location)
        raise DatasetError.of_location(
            f"{location!r} is not a dataset that can be read, for example {names[0]!r}",
            f"expected a folder of class folders, or files ending in {', '.join(_ALL_EXTENSIONS)}",
        )
    if kind == "table" and options.text_column is None:
        column = options.image_column
        kind = _BOX_TABLE if all(is_box_table(file.place, column) for file in files) else kind
    # Several tars are shards of samples with labels; a single one may be a packed folder.
    if kind == "webdataset" and len(files) == 1 and holds_plain_images(files[0].place):
        return "archive"
    return kind


def _of_boxes(place: StoredPath) -> str | None:
    formats = (kind for kind, form in OBJECT_FORMATS.items() if form.is_file(place))
    return next((kind for kind in formats if kind != _BOX_TABLE), None)


def _refuse_with_remedy(name: str, location: str) -> None:
    """Refuses a file of a format that people bring and that is not read."""
    refuse_field(repr(location), [name])
    for endings, remedy in _REMEDIES.items():
        if name.lower().endswith(endings):
            raise DatasetError.of_location(f"{location!r} is not read as a dataset", remedy)


def _extension(name: str) -> str:
    return next(each for each in NAMED_EXTENSIONS if name.lower().endswith(each))


_ALL_EXTENSIONS = (*NAMED_EXTENSIONS, *TAR_EXTENSIONS, ZIP_EXTENSION)


def _kind_by_extension(names: list[str], location: str) -> str | None:
    """The kind of all files; None if one is of no known kind or there are no files."""
    tables = [name for name in names if name.lower().endswith(NAMED_EXTENSIONS)]
    tars = [name for name in names if name.lower().endswith(TAR_EXTENSIONS)]
    if tables and tars:
        raise DatasetError.of_location(
            f"{location!r} holds tables ({tables[0]!r}) and tars ({tars[0]!r})",
            f"choose one kind by a glob such as '*{_extension(tables[0])}'",
        )
    if not names or len(tables) + len(tars) < len(names):
        return None
    return "table" if tables else "webdataset"
