"""What jobs answer, for tests that run none."""

from api.jobs.stored_result import StoredResult


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
