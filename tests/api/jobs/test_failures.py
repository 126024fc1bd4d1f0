"""The owner of a job learns why it failed, and nothing about the server's disks."""

import errno
from typing import Literal

import pytest

from api.http.problems import Problem, not_found
from api.jobs.failures import MAX_LENGTH, describe_failure
from difficulty_service.base.errors import (
    BackboneError,
    DatasetError,
    FeatureStoreError,
    ImageError,
    Setting,
    StatisticsError,
)

NAMES = {"/srv/data/photos": "photos", "s3://bucket/pictures": "bucket"}


@pytest.mark.parametrize(
    ("error", "type_name"),
    [
        (DatasetError("no"), "dataset-error"),
        (BackboneError("no"), "backbone-error"),
        (StatisticsError("no"), "statistics-error"),
        (ImageError("no"), "image-error"),
        (not_found("upload", "x"), "not-found"),
    ],
)
def test_an_error_of_the_request_has_a_name_and_is_not_retried(
    error: Exception, type_name: str
) -> None:
    failure = describe_failure(error, NAMES)

    assert failure.type == type_name
    assert not failure.retry


@pytest.mark.parametrize(
    ("error", "type_name"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "storage"),
        (OSError("pyarrow's own"), "storage"),
        (MemoryError(), "out-of-memory"),
        (RuntimeError("no"), "internal"),
        (FeatureStoreError("damaged"), "feature-store-error"),
    ],
)
def test_an_error_of_the_service_is_retried(error: Exception, type_name: str) -> None:
    failure = describe_failure(error, NAMES)

    assert failure.type == type_name
    assert failure.retry


@pytest.mark.parametrize(
    ("cause", "retry"),
    [(FileNotFoundError(), False), (ConnectionError(), True), (ValueError(), False)],
)
def test_a_dataset_that_cannot_be_read_is_tried_again_where_only_the_way_to_it_failed(
    cause: Exception,
    retry: bool,  # noqa: FBT001
) -> None:
    error = DatasetError("cannot be read")
    error.__cause__ = cause

    assert describe_failure(error, NAMES).retry is retry


def test_a_full_disk_is_named() -> None:
    failure = describe_failure(OSError(errno.ENOSPC, "No space", "/srv/work/x"), NAMES)

    assert failure.error.to_json() == {
        "type": "storage",
        "detail": "the service has no space left to work in",
    }


def test_the_message_of_an_unforeseen_error_stays_inside() -> None:
    failure = describe_failure(RuntimeError("password=hunter2 at /srv/secret"), NAMES)

    assert "hunter2" not in failure.detail
    assert "secret" not in failure.detail


def test_a_remedy_names_fields_of_the_job_request() -> None:
    error = StatisticsError(
        "40 samples",
        "add samples, or use ",
        Setting("shrinkage", "ledoit-wolf"),
        parameter="shrinkage",
    )

    assert describe_failure(error, NAMES).error.to_json() == {
        "type": "statistics-error",
        "detail": "40 samples",
        "remedy": 'add samples, or use "shrinkage": "ledoit-wolf"',
        "field": "shrinkage",
    }


def test_a_field_whose_value_is_open_is_named_alone() -> None:
    error = DatasetError("the column is unclear", "name it in ", Setting("image_column"))

    assert describe_failure(error, NAMES).remedy == 'name it in "image_column"'


def test_a_remedy_of_the_operator_names_the_variable() -> None:
    error = ImageError("too large", "raise ", Setting("max_pixels"), parameter="max_pixels")

    failure = describe_failure(error, NAMES)

    assert failure.remedy == "raise DIFFICULTY_MAX_PIXELS (a setting of the operator)"
    assert failure.field is None


def test_a_remedy_that_neither_client_nor_operator_can_follow_is_left_out() -> None:
    error = BackboneError("out of memory", "use ", Setting("batch_size", 1), parameter="batch_size")

    assert describe_failure(error, NAMES).error.to_json() == {
        "type": "backbone-error",
        "detail": "out of memory",
    }


def test_a_remedy_hides_paths_too() -> None:
    error = DatasetError("no classes", "see /srv/data/photos/train and /home/someone/notes.txt")

    assert describe_failure(error, NAMES).remedy == "see photos/train and notes.txt"


def test_a_problem_keeps_its_remedy_and_field() -> None:
    problem = Problem(410, "gone", "the upload expired", "send it again", field="dataset.upload")

    assert describe_failure(problem, NAMES).error.to_json() == {
        "type": "gone",
        "detail": "the upload expired",
        "remedy": "send it again",
        "field": "dataset.upload",
    }


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("job", "GET /v1/jobs lists"),
        ("upload", "GET /v1/uploads lists"),
        ("sample", "GET /v1/jobs/{job_id}/scores lists"),
    ],
)
def test_what_is_not_found_has_an_address_that_lists_it(
    kind: Literal["job", "upload", "sample"], listed: str
) -> None:
    problem = not_found(kind, "x")

    assert problem.detail == f"there is no {kind} 'x'"
    assert problem.remedy.startswith(listed)


def test_what_a_job_says_has_a_bounded_length_and_can_be_stored() -> None:
    long = "x" * 2_000_000
    failure = describe_failure(DatasetError(f"class {long}", f"rename {long}"), NAMES)
    odd = describe_failure(DatasetError("class \ud800\0"), NAMES)

    body = failure.error.to_json()

    assert [len(body["detail"]), len(body["remedy"])] == [MAX_LENGTH, MAX_LENGTH]
    assert body["detail"].startswith("class xxx")
    assert odd.error.detail == r"class \ud800\0"


@pytest.mark.parametrize("text", ["x" * 10_000, "/" * 100_000, "/a" * 50_000, " /" * 50_000])
def test_hiding_the_paths_of_a_long_message_takes_no_time(text: str) -> None:
    assert len(describe_failure(DatasetError(text), NAMES).error.detail) <= MAX_LENGTH
