"""Uploads are checked where a damaged one cannot end the web server."""

import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from api.http.problems import Problem
from api.uploads import checking as readers
from api.uploads.checking import ENDED, NUMBER, UploadChecks

LIMIT = 600.0  # seconds, which no check here takes
ABORTING = Path(__file__).parents[2] / "data" / "aborting.parquet"


@pytest.fixture(scope="module")
def checks() -> Iterator[UploadChecks]:
    with closing(UploadChecks(LIMIT)) as checks:
        yield checks


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"image": [b"an image"], "label": ["cat"]}), path)
    return path


def test_a_file_that_ends_its_reader_is_refused_and_the_next_is_read(
    checks: UploadChecks, whole: Path
) -> None:
    for _ in range(NUMBER + 1):
        with pytest.raises(Problem, match=ENDED) as caught:
            checks.check(ABORTING, "parquet")
        assert caught.value.status == 422

    checks.check(whole, "parquet")


@pytest.fixture
def long_index(tmp_path: Path) -> Path:
    """A tar with so many members that reading their headers takes a while."""
    path = tmp_path / "long.tar"
    with path.open("wb") as file:
        for number in range(30_000):
            file.write(tarfile.TarInfo(f"cat/{number}.png").tobuf())
        file.write(bytes(1024))
    return path


@pytest.mark.slow
def test_a_check_that_takes_longer_than_its_limit_is_ended_and_the_next_goes_on(
    checks: UploadChecks, long_index: Path, whole: Path
) -> None:
    with (
        closing(UploadChecks(0.01)) as hurried,
        capture_logs() as events,
        pytest.raises(Problem, match=r"took longer than 0\.01 s") as caught,
    ):
        hurried.check(long_index, "tar")

    assert caught.value.status == 422
    assert "DIFFICULTY_UPLOAD_CHECK_SECONDS" in caught.value.remedy
    assert [event["reason"] for event in events] == ["it took longer than 0.01 s"]
    checks.check(long_index, "tar")  # with nothing wrong but the time
    checks.check(whole, "parquet")


def test_the_log_names_the_upload_that_ended_its_reader_without_a_traceback(
    checks: UploadChecks,
) -> None:
    with capture_logs() as events, pytest.raises(Problem, match=ENDED):
        checks.check(ABORTING, "parquet")

    assert events == [
        {"log_level": "warning", "event": "upload-check-ended", "upload": "aborting"}
        | {"reason": ENDED}
    ]


def test_the_reason_names_no_folder_of_the_server(checks: UploadChecks, whole: Path) -> None:
    pq.write_table(pa.table({"label": ["cat"]}), whole)

    with pytest.raises(Problem, match="holds images as encoded bytes") as caught:
        checks.check(whole, "parquet")

    assert str(whole.parent) not in str(caught.value.detail)


def test_more_pages_than_anybody_writes_are_refused(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert readers.find_fault(whole, "parquet") is None

    monkeypatch.setattr(readers, "MAX_PAGES", 3)

    assert readers.find_fault(whole, "parquet") == "it has more than 3 pages"
