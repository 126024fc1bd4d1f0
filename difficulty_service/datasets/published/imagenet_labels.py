"""The labels of ImageNet's validation images, from the files in which they are published."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from difficulty_service.datasets.published.mat_files import list_variables, read_variable
from difficulty_service.datasets.published.members import MAX_BYTES, Member, damaged
from difficulty_service.datasets.published.text_files import read_lines
from difficulty_service.datasets.storage import StoredPath, list_folder
from difficulty_service.errors import DatasetError

GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
DEVKITS = ("ILSVRC2012_devkit_t12/data/", "devkit/data/", "data/", "")
SOLUTION = "LOC_val_solution.csv"
SYNSET_FILES = ("imagenet_2012_validation_synset_labels.txt", "val_synsets.txt")
FOLDERS_ABOVE = 4
"""The files of Kaggle have the images four folders below their labels."""

NUM_CLASSES = 1000


@dataclass(frozen=True)
class Labels:
    """Labels of validation images.

    Attributes:
        source: Name of the file that they are from.
        class_names: WordNet ids, sorted.
        by_number: Class index of each image by its number, where the file has no names.
        by_stem: Class index by the name of the image without its extension.
    """

    source: str
    class_names: tuple[str, ...]
    by_number: Sequence[int] = ()
    by_stem: dict[str, int] = field(default_factory=dict)


def find_labels(place: StoredPath, location: str) -> Labels:
    """Finds the labels in the folder of the images or in the four above it, the nearest first.

    Raises:
        DatasetError: There are none, or the file is damaged.
    """
    folder = place
    for _ in range(1 + FOLDERS_ABOVE):
        labels = _labels_in(folder)
        if labels is not None:
            return labels
        folder = folder.parent
    raise DatasetError(
        f"{location!r} holds validation images of ImageNet, but no file with their labels is there "
        "or in the folders above",
        f"put there the folder {DEVKITS[0].split('/')[0]!r} of the development kit, Kaggle's "
        f"{SOLUTION!r}, or {SYNSET_FILES[1]!r} with a WordNet id for each image and line",
        parameter="location",
    )


def _labels_in(folder: StoredPath) -> Labels | None:
    for name in (SOLUTION, *SYNSET_FILES):
        lines = read_lines(folder.join(name))
        if lines is not None:
            return _from_wordnet_ids(lines, name)
    for data in DEVKITS:
        lines = read_lines(folder.join(data + GROUND_TRUTH))
        if lines is not None:
            return _from_devkit(lines, _meta_in(folder.join(data.rstrip("/"))))
    return None


def _from_wordnet_ids(lines: list[str], source: str) -> Labels:
    """Reads lines `wnid`, `name wnid` or, as Kaggle has them, `name,wnid x y x y …`."""
    parts = [line.replace(",", " ").split()[:2] for line in lines]
    if parts and parts[0][0] == "ImageId":
        parts = parts[1:]
    wordnet_ids = [words[-1] for words in parts]
    wrong = [each for each in wordnet_ids if not (each[:1] == "n" and each[1:].isdigit())]
    if wrong:
        raise damaged(source, f"{wrong[0]!r} is not a WordNet id such as 'n01440764'")
    class_names = tuple(sorted(set(wordnet_ids)))
    index = {name: label for label, name in enumerate(class_names)}
    labels = [index[wordnet_id] for wordnet_id in wordnet_ids]
    if all(len(words) == 1 for words in parts):
        return Labels(source, class_names, by_number=labels)
    stems = (words[0].removesuffix(".JPEG") for words in parts)
    return Labels(source, class_names, by_stem=dict(zip(stems, labels, strict=True)))


def _meta_in(folder: StoredPath) -> Member:
    try:
        sizes = {name: size for name, is_dir, size in list_folder(folder) if not is_dir}
    except (OSError, ValueError) as error:
        raise DatasetError(f"the folder {folder.name!r} cannot be listed: {error}") from error
    if META not in sizes:
        raise DatasetError(
            f"there is no {META!r} beside {GROUND_TRUTH!r}",
            "put it there; it is in the same folder of the development kit",
        )
    return Member(META, folder.join(META), 0, sizes[META])


def _from_devkit(lines: list[str], meta: Member) -> Labels:
    """Reads the numbers of classes, whose WordNet ids are in `meta.mat`."""
    wordnet_ids = _read_meta(meta)
    class_names = tuple(sorted(wordnet_ids.values()))
    index = {name: label for label, name in enumerate(class_names)}
    try:
        labels = [index[wordnet_ids[int(line)]] for line in lines]
    except (KeyError, ValueError) as error:
        raise damaged(GROUND_TRUTH, f"{error} is not the number of a class") from error
    return Labels(GROUND_TRUTH, class_names, by_number=labels)


def _read_meta(file: Member) -> dict[int, str]:
    """WordNet id of each class by its number, 1 to 1000; larger numbers are groups of classes."""
    variable = list_variables(file).get("synsets")
    synsets = read_variable(file, variable, MAX_BYTES) if variable else []
    try:
        wordnet_ids = {int(each["ILSVRC2012_ID"].item()): each["WNID"] for each in synsets}
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise damaged(META, "it does not hold the numbers and WordNet ids of classes") from error
    wordnet_ids = {number: name for number, name in wordnet_ids.items() if number <= NUM_CLASSES}
    if not wordnet_ids or not all(isinstance(name, str) for name in wordnet_ids.values()):
        raise damaged(META, "it does not hold the WordNet ids of classes")
    return wordnet_ids
