"""What the files of class folders say: whether they are images alone, or have annotations."""

from collections.abc import Sequence

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.wording import count_of, list_names
from difficulty_service.datasets.folder_checks import FolderChoice, Folders, title_of
from difficulty_service.datasets.folder_tree import FolderTree
from difficulty_service.datasets.image_openers import field_file, has_image_extension
from difficulty_service.datasets.layouts import (
    Files,
    annotates,
    annotations_beside,
    count_unread,
    is_many,
    masks_beside,
    masks_of,
    paired_of,
)
from difficulty_service.datasets.sample import UNLABELLED
from difficulty_service.images.header import CONVERT


def leave_out_others(
    tree: FolderTree,
    entries: dict[str, list[tuple[str, int]]],
    folders: Folders,
    location: str,
    choice: FolderChoice,
) -> None:
    """Takes folders without images out of the classes; asks where much would be left unread.

    Raises:
        DatasetError: The files are evidently of another layout, or many would not be read.
    """
    inside = {folder: Files.of(path for path, _ in files) for folder, files in entries.items()}
    images = [path for files in inside.values() for path in files.images]
    bare = [name for name, files in inside.items() if not files.images]
    if bare and not images:
        _refuse_without_images(location, inside[bare[0]].others, choice)
    unread = sum(map(count_unread, inside.values()))
    unread += sum(not has_image_extension(p) or "outside" in why for p, why in folders.skipped)
    for folder in bare:
        if annotates(inside[folder].others, images):
            others = [each for each in inside if each not in bare]
            whole = f"; for classes in {others[0]!r}, name that" if len(others) == 1 else ""
            raise DatasetError.of_location(
                f"{folder!r} in {location!r} has files called as the images are, as annotations of "
                "boxes or masks, and is no class",
                choice.convert() + whole,
                *choice.classes_all_the_same,
            )
        folders.skipped.append((folder, "a folder without images"))
        del entries[folder], inside[folder]
    _refuse_annotated(tree, location, inside, choice)
    if is_many(unread, len(images)):
        raise DatasetError.of_location(
            f"{location!r} has {count_of(len(images), 'image')} where they are looked for, and "
            f"{count_of(unread, 'other file')} that would not be read",
            "move those elsewhere, or read what can be by ",
            choice.sure,
        )
    for folder in [each for each in entries if len(entries) > 1]:
        if folder.rpartition("/")[2].lower() in {"unlabeled", UNLABELLED}:
            folders.skipped.append((folder, "a folder of images without a label"))
            del entries[folder]


def _refuse_annotated(
    tree: FolderTree, location: str, folders: dict[str, Files], choice: FolderChoice
) -> None:
    """Refuses images that have a file of annotations or a mask each."""
    files = Files.together(folders.values())
    images = count_of(len(files.images), "image")
    extension = annotations_beside(files)
    if extension is not None:
        first = next(path for path in files.others if path.lower().endswith(f".{extension}"))
        title = title_of(tree, first)
        raise DatasetError.of_location(
            f"{location!r} has a .{extension} beside most of its {images}, as "
            f"{f'datasets of {title} do' if title else 'boxes, captions or labels are kept'}",
            choice.convert(),
            *choice.images_alone,
        )
    pair = masks_beside(files.images)
    if pair is not None:
        raise DatasetError.of_location(
            f"{location!r} has {pair[0]!r} beside {pair[1]!r}, and more that seem to be masks of "
            "the images beside them",
            "move them elsewhere, or write a CSV with the columns path and label of the images, "
            "and name that; to read masks as images, too, set ",
            choice.sure,
        )
    found = masks_of(folders)
    if found is not None:
        raise DatasetError.of_location(
            f"{found[0]!r} in {location!r} seems to have masks of the images in {found[1]!r}",
            f"name the folder {found[1]!r} alone, with a CSV of its labels or without labels",
            *choice.classes_all_the_same,
        )
    paired = paired_of(folders)
    if paired:
        raise DatasetError.of_location(
            f"{list_names([*map(repr, paired)])} in {location!r} have images of the same names, as "
            "pairs of one image each, and are no classes",
            f"name the folder {paired[0]!r} alone, with a CSV of its labels or without labels",
            *choice.classes_all_the_same,
        )


def _refuse_without_images(location: str, files: list[str], choice: FolderChoice) -> None:
    """Refuses folders with files none of which is an image by its name."""
    refuse_field(repr(location), files)
    raise DatasetError.of_location(
        f"the folders of {location!r} hold no images, but {list_names([*map(repr, files)], 3)}",
        f"{'unpack it and ' if choice.in_archive else ''}name what holds the samples, such as a "
        "table or a tar, or write one sub-folder of images per class",
    )


def refuse_field(where: str, files: Sequence[str]) -> None:
    """Refuses files of another field, such as DICOM, that have to become images first."""
    of_field = field_file(files[0]) if files else None
    if of_field is not None:
        raise DatasetError.of_location(
            f"{files[0]!r} in {where} is {of_field}, which is not read", CONVERT
        )
