"""Which folders are no classes: splits, and the layouts of boxes, masks and sequences.

A folder of images is read as a class only where nothing says otherwise. What does is looked for by
the names of folders and by what is in them; the images themselves are not opened.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.splits import split_of_folder, words_of

_YEAR = re.compile(r"[_-]?\d{4}$")
_MASK = re.compile(
    r"mask|annot|(?<!un)label|ground.?truth|segment|(^|[^a-z])(gt|seg|lbl)(?![a-z])", re.IGNORECASE
)
_OF_MASK = re.compile(r"[_-]?(mask|gt|seg|label|annotation)s?([_-]?\d{1,2})?$", re.IGNORECASE)
_WORD_OF_MASK = re.compile(r"mask|gt|seg|label|annotation")
_LONGEST_END = 21
"""Characters at the end of a name that tell a mask from its image, at most, with its extension."""

_PARTS = frozenset((
    "batch", "chunk", "data", "files", "fold", "frames", "images", "img", "imgs", "part", "photos",
    "pictures", "subset",
))  # fmt: skip
_OF_BOXES = frozenset(
    ("images", "jpegimages", "imagesets", "labels", "annotations", "masks", "segmentationclass")
)
CONVERT = (
    "boxes are read in the formats of COCO, YOLO, Pascal VOC, Label Studio, CVAT, LabelMe, "
    "Supervisely and CreateML, and in a CSV with the columns path, label, x_min, y_min, x_max and "
    "y_max; to score whole images, write a CSV with the columns path and label, and name that"
)
"""What to do with a dataset of boxes or masks in another layout."""

Names = frozenset[str]

_PAIRS: tuple[Names, ...] = tuple(map(frozenset, (
    ("input", "target"), ("input", "output"), ("source", "target"), ("raw", "reference"),
    ("rgb", "depth"), ("rgb", "thermal"), ("rgb", "ir"), ("visible", "infrared"),
    ("hr", "lr"), ("gt", "lq"), ("high", "low"), ("noisy", "clean"), ("blur", "sharp"),
    ("hazy", "clear"), ("rainy", "clean"), ("before", "after"), ("left", "right"),
)))  # fmt: skip
"""Folders of images in pairs, as for restoration, stereo views or changes."""


@dataclass(frozen=True)
class Layout:
    """A layout of other datasets whose folders are no classes.

    Attributes:
        title: Its name.
        is_it: Whether the names of the folders beside each other, in small letters, are its own.
        may_be_read: Whether its boxes are read where they are not in an archive.
    """

    title: str
    is_it: Callable[[Names], bool]
    may_be_read: bool = False


def _one_and_any(first: str, *others: str) -> Callable[[Names], bool]:
    return lambda names: first in names and not names.isdisjoint(others)


def _is_camvid(names: Names) -> bool:
    return any(f"{name}annot" in names for name in names)


def _is_kitti(names: Names) -> bool:
    views = [name for name in names if re.fullmatch(r"image_\d+", name)]
    others = ("label_", "calib", "velodyne", "semantic", "instance", "disp_", "flow_", "prev_")
    return bool(views) and any(name.startswith(others) for name in names)


_PARTS_OF_VOC = ("annotations", "imagesets", "segmentationclass", "segmentationobject")

LAYOUTS = (
    Layout("Pascal VOC", _one_and_any("jpegimages", *_PARTS_OF_VOC), may_be_read=True),
    Layout("Supervisely", {"img", "ann"}.issubset),
    Layout("KITTI", _is_kitti),
    Layout("DOTA", lambda names: any(name.startswith("labeltxt") for name in names)),
    Layout("CamVid", _is_camvid),
    Layout("Cityscapes", _one_and_any("leftimg8bit", "gtfine", "gtcoarse")),
    Layout("MOT Challenge", _one_and_any("img1", "gt", "det")),
    Layout("WIDER FACE", lambda names: "wider_face_split" in names),
)
"""Layouts by the names of their folders, each before those that it also looks like."""

MVTEC = "ground_truth"
"""The folder of masks beside `train` and `test` in MVTec AD, whose `test` has classes."""


def layout_of(folders: Iterable[str]) -> Layout | None:
    """The layout of folders beside each other; None where they may be classes or splits."""
    names = frozenset(_YEAR.sub("", name.lower()) for name in folders)
    named = next((layout for layout in LAYOUTS if layout.is_it(names)), None)
    if named is not None:
        return named
    rest = {name for name in names if split_of_folder(name) is None}
    if len(names) > 1 and names & _OF_BOXES and rest <= _OF_BOXES:
        return Layout("boxes or masks", bool, may_be_read=True)
    return None


FEW, FEW_OF = 20, 20
"""Entries that may be left unread without a question: this many, or one in so many images."""

_FEWEST_MASKS = 3
_MOST_MASKS = 20  # folders called so; of more, each is compared with all others
_FEW_PAIRS = 10
_ANNOTATIONS = frozenset(("json", "txt", "xml"))
_OF_CAMERAS = frozenset(
    ("aae", "arw", "cr2", "cr3", "dng", "mov", "mp4", "nef", "orf", "raf", "rw2", "thm", "xmp")
)


def _stem(path: str) -> str:
    return path.rpartition(".")[0] or path


def _extension(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[2].lower()


@dataclass(frozen=True)
class Files:
    """The files of a folder, told apart once by the ends of their names.

    Attributes:
        images: Paths with the extension of an image.
        others: Paths of all other files.
    """

    images: list[str]
    others: list[str]

    @classmethod
    def of(cls, paths: Iterable[str]) -> "Files":
        """Files by their paths, in order."""
        images: list[str] = []
        others: list[str] = []
        for path in paths:
            (images if has_image_extension(path) else others).append(path)
        return cls(images, others)

    @classmethod
    def together(cls, several: Iterable["Files"]) -> "Files":
        """The files of several folders."""
        whole = cls([], [])
        for files in several:
            whole.images.extend(files.images)
            whole.others.extend(files.others)
        return whole


def annotations_beside(files: Files) -> str | None:
    """The extension of files that most images have beside them, under the same name; else None."""
    likely = [path for path in files.others if _extension(path) in _ANNOTATIONS]
    if not likely:
        return None
    images = set(map(_stem, files.images))
    others = Counter(_extension(path) for path in likely if _stem(path) in images)
    extension, number = max(others.items(), key=lambda each: each[1], default=("", 0))
    return extension if images and 2 * number >= len(images) else None


def annotates(folder: Collection[str], images: Collection[str]) -> bool:
    """Whether the files of a folder have the names of images elsewhere, most of them."""
    own = [_stem(path.rpartition("/")[2]) for path in folder]
    known = {_stem(path.rpartition("/")[2]) for path in images}
    return bool(own) and 2 * sum(name in known for name in own) >= len(own)


def masks_of(classes: Mapping[str, Files]) -> tuple[str, str] | None:
    """A folder of masks, and that of their images, by its name and the names of its files."""
    called = {name: _MASK.search(name.rpartition("/")[2]) is not None for name in classes}
    likely = [name for name, is_mask in called.items() if is_mask][:_MOST_MASKS]
    if not likely:
        return None
    stems = {
        name: {_without_mask(path) for path in (*files.images, *files.others)}
        for name, files in classes.items()
    }
    for masks in likely:
        alike = []
        for images in (name for name, is_mask in called.items() if not is_mask):
            same = len(stems[images] & stems[masks])
            if same >= _FEWEST_MASKS and 2 * same >= len(stems[images]):
                alike.append(images)
        # Where several have equal names, these only count the images of each.
        of_images = [name for name in alike if len(alike) == 1 or _is_of_images(name)]
        if of_images:
            return masks, of_images[0]
    return None


def paired_of(classes: Mapping[str, Files]) -> tuple[str, ...]:
    """Folders that are called as those of paired images, with equal names in all; else none."""
    called = {" ".join(words_of(name.rpartition("/")[2])): name for name in classes}
    if not any(len(called) > 1 and pair.issuperset(called) for pair in _PAIRS):
        return ()
    stems = [{_stem(path.rpartition("/")[2]) for path in each.images} for each in classes.values()]
    same = len(set.intersection(*stems))
    is_usual = same >= _FEWEST_MASKS and 2 * same >= max(map(len, stems))
    return tuple(called.values()) if is_usual else ()


def _is_of_images(folder: str) -> bool:
    """Whether a folder is called as one of images, or of the images of a split, is."""
    name = folder.rpartition("/")[2]
    return split_of_folder(name) is not None or any(word in _PARTS for word in words_of(name))


def masks_beside(images: Collection[str]) -> tuple[str, str] | None:
    """A mask beside the image of the same name, where there are several such: `7_mask` and `7`."""
    # Much faster than an expression that ignores case.
    likely = [path for path in images if _WORD_OF_MASK.search(path[-_LONGEST_END:].casefold())]
    if len(likely) < _FEWEST_MASKS:
        return None
    by_stem = {_stem(path): path for path in images}
    wholes = [(path, _OF_MASK.sub("", stem)) for path in likely for stem in [_stem(path)]]
    pairs = [
        (path, by_stem[whole])
        for path, whole in wholes
        if whole != _stem(path) and whole in by_stem
    ]
    is_usual = len(pairs) >= _FEWEST_MASKS and _FEW_PAIRS * len(pairs) >= len(images)
    return pairs[0] if is_usual else None


def are_parts(folders: Collection[str]) -> bool:
    """Whether all folders are called as parts of one dataset: `images_001`, `images_002`.

    Their names differ in a number alone, and say that it is one of parts.
    """
    alike = {re.sub(r"\d+", "", name).lower() for name in folders}
    words = {word for name in alike for word in words_of(name)}
    is_numbered = all(any(map(str.isdigit, name)) for name in folders)
    return len(folders) > 1 and len(alike) == 1 and is_numbered and not words.isdisjoint(_PARTS)


def _without_mask(path: str) -> str:
    """The name of a file without what tells a mask from its image."""
    return _OF_MASK.sub("", _stem(path.rpartition("/")[2]))


def count_unread(files: Files) -> int:
    """Number of files that are no images; what a camera writes beside its images is not counted."""
    if not files.others:
        return 0
    stems, whole = set(map(_stem, files.images)), set(files.images)
    return sum(
        not (_extension(path) in _OF_CAMERAS and _stem(path) in stems) and _stem(path) not in whole
        for path in files.others
    )


def is_many(unread: int, num_images: int) -> bool:
    """Whether so many unread entries make a reading a guess that is asked about."""
    return unread > max(FEW, num_images // FEW_OF)
