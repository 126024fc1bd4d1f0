"""Which folders are splits or classes, and what is asked about rather than guessed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.annotation_files import title_of_annotations
from difficulty_service.datasets.folder_tree import (
    FolderTree,
    Level,
    folders_inside,
    holds_images,
    label_files,
    peek,
)
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.labels import find_usual
from difficulty_service.datasets.layouts import (
    CONVERT,
    MVTEC,
    are_parts,
    layout_of,
)
from difficulty_service.datasets.sample import DatasetOptions, Skipped
from difficulty_service.datasets.splits import (
    BESIDE_SPLITS,
    choose_split,
    match_split,
    split_folders,
    split_of_file,
    split_of_folder,
)
from difficulty_service.datasets.table_columns import IMAGE_NAMES
from difficulty_service.datasets.table_files import TABLE_EXTENSIONS
from difficulty_service.datasets.text_tables import names_in

_LOOKED_AT = 20
"""Number of class folders in which another layout is looked for, and of files of annotations."""

_FOLDERS_BELOW = 5
"""Number of folders in a folder in which annotations are looked for."""

_ARRAYS = (".mat", ".npy", ".npz", ".pkl", ".pickle", ".h5", ".hdf5")

_UNPACK = "unpack it if it is an archive of boxes, whose folder is read; "


@dataclass(frozen=True)
class FolderChoice:
    """Which folders of a tree are read, and as what.

    Attributes:
        split: Split to read; None for the only one.
        unlabelled: Whether all files are samples of one class.
        is_sure: Whether a person said that the folders are classes, so that nothing is guessed.
        in_archive: Whether the tree is in an archive, in which no boxes are read.
    """

    split: str | None = None
    unlabelled: bool = False
    is_sure: bool = False
    in_archive: bool = False

    @classmethod
    def of(cls, options: DatasetOptions, *, in_archive: bool = False) -> "FolderChoice":
        """What the options of a dataset say about it."""
        is_sure = options.format is not None
        return cls(options.split, options.unlabelled, is_sure, in_archive)

    def convert(self, *, may_be_read: bool = True) -> str:
        """What to do with boxes or masks, which may be read where they are not in an archive."""
        return (_UNPACK if self.in_archive and may_be_read else "") + CONVERT

    @property
    def sure(self) -> Setting:
        """The setting by which a person says that folders are classes."""
        return Setting("format", "archive" if self.in_archive else "image-folder")

    @property
    def classes_all_the_same(self) -> tuple[str, Setting]:
        """The end of a remedy: nothing else is meant."""
        return "; if the folders are classes all the same, set ", self.sure

    @property
    def images_alone(self) -> tuple[str, Setting]:
        """The end of a remedy: other files are not read."""
        return "; to read the images alone, set ", self.sure


@dataclass
class Folders:
    """The folders with the samples, and what is beside them.

    Attributes:
        paths: Class folders; or, without labels, the one that holds all samples.
        has_classes: Whether these are classes.
    """

    paths: list[str]
    skipped: list[Skipped] = field(default_factory=list)
    has_classes: bool = True


def find_split(tree: FolderTree, location: str, top: Level, choice: FolderChoice) -> str | None:
    """The folder of the split to read; None where the folders are no splits.

    Raises:
        DatasetError: There are several and none is chosen, or not the one that is.
    """
    if choice.split is not None:
        found = match_split(top.folders, choice.split)
        if found is None:
            raise DatasetError(
                f"{location!r} has no sub-folder {choice.split!r}",
                f"it has {top.folders[:20]}",
                parameter="split",
            )
        return found
    if choice.is_sure:
        return None
    _refuse_layout(tree, repr(location), top, choice)
    inside = {name: peek(tree, top.prefix + name) for name in split_folders(top.folders)}
    beside = [name for name in top.folders if name.lower() in BESIDE_SPLITS]
    if not _are_splits(tree, top, inside):
        _refuse_unlabelled_beside(tree, location, top, beside)
        return None
    for level in inside.values():
        _refuse_layout(tree, repr(location), level, choice)
    if MVTEC in top.folders:
        raise DatasetError(
            f"{location!r} has the layout of MVTec AD: {MVTEC!r} holds masks, and the kinds of "
            "defects are the folders of one split",
            "choose it as ",
            Setting("split", match_split(inside, "test") or next(iter(inside))),
            parameter="split",
        )
    filled = [name for name in (*inside, *beside) if peek(tree, top.prefix + name).entries]
    if len(filled) == 1:
        _refuse_images_beside(tree, location, top, filled[0], choice)
    return choose_split(filled or list(inside), None, location)


def _refuse_unlabelled_beside(
    tree: FolderTree, location: str, top: Level, beside: list[str]
) -> None:
    """Asks which is meant of images without labels and the only folder of folders beside them."""
    others = [name for name in top.folders if name not in beside]
    filled = [name for name in beside if peek(tree, top.prefix + name).entries]
    if len(others) == 1 and filled:
        only = peek(tree, top.prefix + others[0])
        if only.folders and not only.has_images:
            choose_split([*others, *filled], None, location)


def _refuse_images_beside(
    tree: FolderTree, location: str, top: Level, split: str, choice: FolderChoice
) -> None:
    """Refuses to leave out folders of images that are called otherwise than the only split."""
    rest = (name for name in top.folders if name != split)
    other = next((name for name in rest if holds_images(tree, top.prefix + name)), None)
    if other is not None:
        raise DatasetError(
            f"{location!r} has the folder {split!r}, which is called as a split, beside "
            f"{other!r}, which is not",
            "choose the split as ",
            Setting("split", split),
            *choice.classes_all_the_same,
            parameter="split",
        )


def _are_splits(tree: FolderTree, top: Level, inside: dict[str, Level]) -> bool:
    """Whether folders with the names of splits are that, and no classes.

    A folder called `train` may be a class of vehicles. It is none where all folders have such
    names, where two of them are of different splits, or where it holds folders and others do not,
    or the same ones.
    """
    if not inside:
        return False
    others = [n for n in top.folders if n not in inside and n.lower() not in BESIDE_SPLITS]
    if len(top.folders) > 1 and not others:
        return True
    if len(set(split_folders(inside).values())) > 1:
        return True
    for level in inside.values():
        if level.folders and not level.has_images:
            levels = [peek(tree, top.prefix + name) for name in others[:_LOOKED_AT]]
            if any(not set(level.folders).isdisjoint(other.folders) for other in levels):
                return True
            if any(other.has_images and not other.folders for other in levels):
                return True
    return False


def is_one_of_images(tree: FolderTree, top: Level) -> bool:
    """Whether the only folder is called as one of images or of a split is, and so is no class."""
    return not top.label_files and _has_images_alone(tree, top)


def _has_images_alone(tree: FolderTree, top: Level) -> bool:
    if len(top.folders) != 1:
        return False
    name = top.folders[0].lower()
    is_called = name in {"images", "imgs", "img", "data", "photos"} or bool(split_folders([name]))
    inside = peek(tree, top.prefix + top.folders[0])
    return is_called and inside.has_images and not inside.folders


def refuse_labels_beside(
    tree: FolderTree,
    location: str,
    levels: Sequence[Level],
    around: list[str],
    choice: FolderChoice,
) -> None:
    """Refuses a split of images alone where a file beside it, or in it, has the labels.

    Args:
        levels: The folder with the images, or with the only one of these, and those around it up
            to that with the splits.
        around: Files beside the folders around these.
    """
    inside = levels[0]
    is_flat = not inside.folders or _has_images_alone(tree, inside)
    if not is_flat or choice.unlabelled or choice.is_sure:
        return
    split = levels[-2].path.rpartition("/")[2]
    where = f"{location!r}, split {split!r},"
    for level in levels:
        refuse_annotations(tree, where, level, choice)
    files = [level.prefix + name for level in levels for name in level.label_files]
    files += label_files(around)
    meant = split_of_folder(split)
    files.sort(key=lambda name: meant is None or split_of_file(name) != meant)
    if files:
        name = _likeliest(tree, files)[0]
        raise DatasetError.of_location(
            f"the split {split!r} of {location!r} has images and no class folders; the labels are "
            f"probably in {name!r}",
            *_of_labels_in(tree, [name], inside.path),
        )


def refuse_labels_among(tree: FolderTree, where: str, top: Level) -> None:
    """Refuses images without folders where a file among them names them."""
    names = [each for each in top.files if each.lower().endswith((".json", ".txt"))]
    for name in names[:_LOOKED_AT] if top.has_images else ():
        path = top.prefix + name
        is_table = name.lower().endswith(".json") and _has_images_named(tree, path)
        if is_table or _names(tree, path, top):
            raise DatasetError.of_location(
                f"{where} has images and no class folders; the labels are probably in {path!r}",
                *_of_labels_in(tree, [path], top.path),
            )


def _likeliest(tree: FolderTree, names: list[str]) -> list[str]:
    """The files with columns of images, of some that may have the labels; or else the first one."""
    return [name for name in names if _has_images_named(tree, name)] or names[:1]


def _of_labels_in(tree: FolderTree, names: Sequence[str], images: str) -> tuple[str | Setting, ...]:
    """What to do where files have the labels of images that are in no class folders.

    A table finds those in folders beside it.
    """
    name = names[0]
    is_beside = f"{images}/".startswith(name.rpartition("/")[0])
    is_table = name.lower().endswith(TABLE_EXTENSIONS) or _has_images_named(tree, name)
    that = "one of these tables" if len(names) > 1 else "that table"
    return (
        f"name {that} as the dataset, unpacked if this is an archive"
        if is_beside and is_table
        else "write a CSV with the columns path and label, and name that as the dataset, or "
        "unpack it if it is an archive of boxes, whose folder is read",
        "; or ignore them by ",
        Setting("unlabelled", value=True),
    )


def _has_images_named(tree: FolderTree, name: str) -> bool:
    """Whether a table of text has a column that is called as those of images are."""
    try:
        return bool(find_usual(IMAGE_NAMES, names_in(tree.head(name), name)))
    except (OSError, DatasetError, ValueError):
        return False


def refuse_annotations(tree: FolderTree, where: str, top: Level, choice: FolderChoice) -> None:
    """Refuses files beside images or their folders that another program wrote about them."""
    for name in top.label_files[:_LOOKED_AT]:
        title = title_of(tree, top.prefix + name)
        if title is not None:
            raise DatasetError.of_location(
                f"{where} has {name!r}, which has annotations as {title} writes them",
                choice.convert(may_be_read=False),
                *(choice.classes_all_the_same if top.folders else choice.images_alone),
            )


def title_of(tree: FolderTree, path: str) -> str | None:
    """What wrote a file of annotations; None where that is not known, or the file unreadable."""
    try:
        return title_of_annotations(tree.head(path))
    except OSError:
        return None


def _title_below(tree: FolderTree, level: Level) -> str | None:
    """What wrote the annotations in folders beside those of images, by the first files of them."""
    titles = (title_of(tree, path) for path in islice(_others_below(tree, level), _LOOKED_AT))
    return next(filter(None, titles), None)


def _others_below(tree: FolderTree, level: Level, depth: int = 2) -> Iterator[str]:
    """Files that are no images in a folder, and in the first folders below it."""
    for name in level.files:
        if not has_image_extension(name):
            yield level.prefix + name
    for name in level.folders[:_FOLDERS_BELOW] if depth else ():
        yield from _others_below(tree, peek(tree, level.prefix + name), depth - 1)


def refuse_labels_elsewhere(
    tree: FolderTree, where: str, top: Level, around: list[str], choice: FolderChoice
) -> None:
    """Refuses a folder that is evidently no class: the labels are in a file.

    Args:
        around: Files beside the folders around it.
    """
    if len(top.folders) != 1:
        return
    files = [*(top.prefix + name for name in top.files), *around]
    known = [*(top.prefix + name for name in top.label_files), *label_files(around)]
    if not known:
        inside = peek(tree, top.prefix + top.folders[0])
        known = [] if inside.folders else [name for name in files if _lists(tree, name, inside)]
    if known:
        known = _likeliest(tree, known)
        raise DatasetError.of_location(
            f"{where} has a single folder, {top.folders[0]!r}, with "
            f"{list_names([*map(repr, known)], 3)} beside it, where the labels probably are",
            *_of_labels_in(tree, known, top.prefix + top.folders[0]),
            *choice.classes_all_the_same,
        )


def _lists(tree: FolderTree, name: str, images: Level) -> bool:
    """Whether a file has something about each of some images: their names, or arrays."""
    if name.lower().endswith(_ARRAYS):
        return True
    return name.lower().endswith(".txt") and _names(tree, name, images)


def _names(tree: FolderTree, name: str, images: Level) -> bool:
    """Whether a text begins with the names of most of the first images."""
    try:
        head = tree.head(name)
    except OSError:
        return False
    named = [each for each in images.files if has_image_extension(each)][:_LOOKED_AT]
    return bool(named) and 2 * sum(each.encode() in head for each in named) > len(named)


def refuse_groups(tree: FolderTree, where: str, top: Level, choice: FolderChoice) -> None:
    """Refuses folders that may be groups of images, each with the same classes in it."""
    looked_at = top.folders[:_LOOKED_AT]
    inside = [folders_inside(tree, top.prefix + folder) for folder in looked_at]
    # Years and months are in classes, and no classes.
    number = Counter(name for folders in inside for name in folders if any(map(str.isalpha, name)))
    common = [name for name, times in number.items() if times > 1 and 2 * times >= len(inside)]
    if len(common) > 1:
        what = f"the same folders in {list_names([*map(repr, looked_at)], 3)}, such as {common[:3]}"
        remedy = f"name one of them, such as {top.prefix + looked_at[0]!r}, or write "
    elif are_parts(top.folders):
        what = f"folders called as parts of one dataset: {list_names(top.folders, 3)}"
        remedy = "write "
    else:
        return
    raise DatasetError.of_location(
        f"{where} has {what}, and it does not say which are the classes",
        f"{remedy}a CSV with the columns path and label, and name that as the dataset; to score "
        "all images without labels, set ",
        Setting("unlabelled", value=True),
        "; if the outer folders are the classes, set ",
        choice.sure,
    )


def _refuse_layout(tree: FolderTree, where: str, level: Level, choice: FolderChoice) -> None:
    """Refuses folders that have the names of another layout."""
    layout = layout_of(level.folders)
    if layout is None:
        return
    what = f"{level.path!r} in {where}" if level.path else where
    title = (layout.may_be_read and _title_below(tree, level)) or layout.title
    raise DatasetError.of_location(
        f"{what} has the folders {list_names(level.folders)}, as datasets of {title} do, and no "
        "classes",
        choice.convert(may_be_read=layout.may_be_read),
        *choice.classes_all_the_same,
    )


def refuse_layout_inside(tree: FolderTree, where: str, top: Level, choice: FolderChoice) -> None:
    """Refuses folders that are of another layout, or hold splits or another layout each."""
    _refuse_layout(tree, where, top, choice)
    looked_at = [peek(tree, top.prefix + folder) for folder in top.folders[:_LOOKED_AT]]
    others = [level for level in looked_at if layout_of(level.folders) is not None]
    if others and 2 * len(others) >= len(looked_at):
        _refuse_layout(tree, where, others[0], choice)
    splits = [
        level
        for level in looked_at
        if not level.has_images and len(set(split_folders(level.folders).values())) > 1
    ]
    if splits and 2 * len(splits) >= len(looked_at):
        one = splits[0]
        called = ", as MVTec AD has," if MVTEC in one.folders else ""
        raise DatasetError.of_location(
            f"{where} has splits in its folders{called} such as {one.folders} in {one.path!r}",
            f"name one of them, such as {one.path!r}, with one of its splits as ",
            Setting("split"),
            *choice.classes_all_the_same,
        )
