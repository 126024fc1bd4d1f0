"""What jobs answer, for tests that run none, and what they have stored."""

import posixpath

from pyarrow.fs import FileSelector, FileType

from api.jobs.stored_result import StoredResult
from api.storage.artifacts import Artifacts


def stored_result(prefix: str = "jobs", **changes: object) -> StoredResult:
    """The result of a job of ten samples, with some other values."""
    usual = {
        "num_samples": 10,
        "num_scored": 10,
        "num_doubtful": 0,
        "num_duplicates": 0,
        "num_bad_images": 0,
        "num_skipped": 0,
        "scores_bytes": 3,
        "scores_sha256": "0" * 64,
        "warnings": [],
        "class_names": ["cat", "dog"],
    }
    return StoredResult.of(usual | {"prefix": prefix} | changes)


def keys_below(artifacts: Artifacts, folder: str) -> list[str]:
    """The keys of all artifacts below a folder, sorted."""
    root = artifacts.root
    selector = FileSelector(root.join(folder).path, allow_not_found=True, recursive=True)
    infos = root.filesystem.get_file_info(selector)
    files = [info.path for info in infos if info.type == FileType.File]
    return sorted(posixpath.relpath(path, root.path) for path in files)
