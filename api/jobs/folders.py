"""What is in a folder of a root, for whoever looks for a dataset; nothing below is walked."""

from collections import Counter
from contextlib import suppress
from pathlib import PurePosixPath

from api.http.problems import Problem, invalid
from api.jobs.dataset import resolve_dataset, root_boundary
from api.settings import Settings
from difficulty_service.base.wording import count_of
from difficulty_service.bodies.service import FolderEntry, FolderPage
from difficulty_service.datasets.archive import ZIP_EXTENSION
from difficulty_service.datasets.folder_tree import visible
from difficulty_service.datasets.image_openers import IMAGE_EXTENSIONS
from difficulty_service.datasets.json_tables import ENDING as JSON
from difficulty_service.datasets.listing import as_text
from difficulty_service.datasets.storage import StoredPath, list_folder, resolve
from difficulty_service.datasets.table_files import LIMITED_EXTENSIONS
from difficulty_service.datasets.tar_files import TAR_EXTENSIONS

MOST_ENTRIES = 100_000  # of a folder that are looked at
PEEKED_ENTRIES = 300  # of each folder in it
PAGE = 100
DATASETS = {
    "table": LIMITED_EXTENSIONS,
    "tar": TAR_EXTENSIONS,
    "zip": (ZIP_EXTENSION,),
    "JSON file": (JSON,),  # a table, or annotations of boxes
    "annotation file": (".xml", ".yaml", ".yml"),  # of boxes
}
OTHERS = {"image": tuple(f".{each}" for each in IMAGE_EXTENSIONS), "other file": ("",)}


def list_roots(settings: Settings, start: int) -> FolderPage:
    """A page of the roots, by name; the path of each as a dataset is empty."""
    names = sorted(settings.roots)
    entries = [FolderEntry(name=name, path="", kind="root", hint="") for name in names]
    more = max(0, len(names) - start - PAGE)
    hint = count_of(len(names), "root")
    shown = entries[start : start + PAGE]
    return FolderPage(root="", path="", hint=hint, start=start, more=more, entries=shown)


def look_into(settings: Settings, root: str, path: str, start: int) -> FolderPage:
    """A page of a folder that jobs may read; hidden files and links that lead out are left out."""
    place = resolve(resolve_dataset(settings, root, path), root_boundary(settings, root))
    parts = PurePosixPath(path).parts
    try:
        if any(part.startswith(".") for part in parts):
            raise FileNotFoundError
        kinds, hint = _peek(place, MOST_ENTRIES)
    except (OSError, ValueError):
        raise invalid(
            f"there is no folder {path[:200]!r} in the root {root!r} that can be read",
            "leave `path` out to list the root, then go on from there",
            "path",
        ) from None
    listed = sorted((kind != "folder", name, kind) for name, kind in kinds if kind not in OTHERS)
    entries = []
    for _, name, kind in listed[start : start + PAGE]:
        below, named, held = "/".join([*parts, name]), None, ""
        with suppress(Problem, UnicodeEncodeError):
            named = below if resolve_dataset(settings, root, below).encode() else None
        if kind == "folder" and place.is_local:
            try:
                _, held = _peek(place.join(name), PEEKED_ENTRIES)
            except OSError:
                held = "cannot be read"
        entries.append(FolderEntry(name=as_text(name), path=named, kind=kind, hint=held))
    more, below = max(0, len(listed) - start - PAGE), "/".join(parts)
    return FolderPage(root=root, path=below, hint=hint, start=start, more=more, entries=entries)


def _peek(place: StoredPath, most: int) -> tuple[list[tuple[str, str]], str]:
    """Name and kind of the first entries, and their numbers in words."""
    found = list_folder(place, most)
    kinds = [(name, "folder" if folder else _kind(name)) for name, folder, _ in visible(found)]
    counts = Counter(kind for _, kind in kinds)
    known = ("folder", *DATASETS, *OTHERS)
    hint = ", ".join(count_of(counts[kind], kind) for kind in known if counts[kind]) or "empty"
    return kinds, hint + (f" among the first {most:,} entries" if len(found) == most else "")


def _kind(name: str) -> str:
    files = DATASETS | OTHERS
    return next(kind for kind, ends in files.items() if name.lower().endswith(ends))
