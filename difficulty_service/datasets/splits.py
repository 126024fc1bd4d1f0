"""Splits of a dataset: how folders and files are named for them, and which one is read."""

import re
from collections.abc import Collection, Iterable, Sequence

from difficulty_service.base.errors import DatasetError, Setting

_WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
    "trainval": ("trainval",),
    "dev": ("dev",),
    "eval": ("eval", "evaluation"),
}
_SPLIT_OF_WORD = {word: split for split, words in _WORDS.items() for word in words}

SPLITS = tuple(_WORDS)
"""Splits by one word for each, in their usual order."""

SPLIT_NAMES = frozenset(_SPLIT_OF_WORD)
"""Names that a split usually has."""

BESIDE_SPLITS = frozenset(("unlabeled", "unlabelled", "unsup", "unsupervised", "extra", "holdout"))
"""Names of folders that are no classes where those beside them are splits."""

_FILLERS = frozenset((
    "image", "images", "img", "imgs", "photo", "photos", "picture", "pictures", "jpg", "jpeg",
    "png", "set", "data", "dataset", "split", "folder", "dir", "files", "part", "fold",
))  # fmt: skip
"""Words beside the one for a split that say nothing else."""

_GLUED = re.compile(r"(train|training|val|valid|validation|test|testing)(set|data|images|imgs)")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MOST_LENGTH = 200


def words_of(name: str) -> list[str]:
    """The words in the name of a folder or file, in small letters."""
    words = [word.lower() for word in _WORD.findall(name[:_MOST_LENGTH])]
    return [part for word in words for part in _unglued(word)]


def _unglued(word: str) -> tuple[str, ...]:
    glued = _GLUED.fullmatch(word)
    return (word,) if glued is None else (glued[1], glued[2])


def split_of_folder(name: str) -> str | None:
    """The split that a folder is evidently of: `train` for `train_images`, `Train2017`, `trainset`.

    None for `bullet_train`, which may be a class.
    """
    splits = [word for word in words_of(name) if word not in _FILLERS]
    return _SPLIT_OF_WORD.get(splits[0]) if len(splits) == 1 else None


def split_of_file(name: str) -> str | None:
    """The split in the name of a file: `test` for `data-test-00000-of-00003.parquet`."""
    stem = name.rpartition("/")[2].partition(".")[0]
    return next((_SPLIT_OF_WORD[word] for word in words_of(stem) if word in SPLIT_NAMES), None)


def split_folders(names: Iterable[str]) -> dict[str, str]:
    """The split of each folder that is one, of folders beside each other; `train` comes first.

    Two or more names that differ in the word for the split alone are splits, too: `WIDER_train` and
    `WIDER_val`.
    """
    names = list(names)
    found = {name: split for name in names if (split := split_of_folder(name)) is not None}
    alike: dict[tuple[str, ...], dict[str, str]] = {}
    for name in names:
        words = words_of(name)
        inside = [word for word in words if word in SPLIT_NAMES]
        if len(inside) == 1:
            rest = tuple("" if word in SPLIT_NAMES else word for word in words)
            alike.setdefault(rest, {})[name] = _SPLIT_OF_WORD[inside[0]]
    for group in alike.values():
        if len(set(group.values())) > 1:
            found |= group
    return dict(sorted(found.items(), key=lambda each: SPLITS.index(each[1])))


def choose_split(splits: Sequence[str], split: str | None, location: str) -> str:
    """The split to read: the one that is asked for, or the only one.

    It may be called otherwise or shortened: `val` is `validation`, and `train` is `train2017` where
    no other one begins so.

    Raises:
        DatasetError: There are several and none is asked for, or not the one that is.
    """
    if split is None and len(splits) == 1:
        return splits[0]
    found = None if split is None else match_split(splits, split)
    if found is not None:
        return found
    if split is not None and not splits:
        raise DatasetError.leave_out(f"{location!r} has no splits", "split")
    if split is None:
        raise DatasetError(
            f"{location!r} holds the splits {list(splits)}",
            "choose one, for example ",
            Setting("split", splits[0]),
            parameter="split",
        )
    raise DatasetError(
        f"{location!r} has no split {split!r}",
        f"choose one of {list(splits)} as ",
        Setting("split"),
        parameter="split",
    )


def match_split(splits: Collection[str], split: str) -> str | None:
    """The one of some splits that is meant by a name; None where none or several may be."""
    if split in splits:
        return split
    meant = split_of_folder(split)
    same = [name for name, each in split_folders(splits).items() if each == meant is not None]
    begin = [name for name in splits if name.startswith(split)]
    return next((found[0] for found in (same, begin) if len(found) == 1), None)
