"""Datasets that no honest owner sends: small files that are huge, values that nobody expects."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.jobs.failures import describe_failure
from api.worker import job_observer
from difficulty_service.base.errors import DifficultyError
from difficulty_service.bodies.jobs import JobError
from tests.api.worker.bench import Bench
from tests.factories import png_of

Fail = Callable[..., JobError]


def png(shade: int) -> bytes:
    return png_of((shade, 2 * shade, 0))


@pytest.fixture
def fail(bench: Bench) -> Fail:
    """Runs a job on a file in the root; returns the failure that its owner is told."""

    def run(name: str, **changes: int) -> JobError:
        job = bench.claim(dataset={"root": "pictures", "path": name})
        with pytest.raises(DifficultyError) as caught:
            bench.with_settings(**changes).run(job)
        failure = describe_failure(caught.value, {})
        assert not failure.retry
        return failure.error

    return run


@pytest.fixture
def write(photos: Path) -> Callable[..., str]:
    """Writes a Parquet file with these labels and images into the root; returns its name."""

    def table(labels: Any, images: Any = None) -> str:  # noqa: ANN401
        column = [png(row) for row in range(len(labels))] if images is None else images
        columns = {"image": column, "label": labels}
        pq.write_table(pa.table(columns), photos.parent / "table.parquet", compression="zstd")
        return "table.parquet"

    return table


def test_the_limits_of_the_operator_are_named(write: Callable[..., str], fail: Fail) -> None:
    name = write([0, 1, 100] * 4)

    rows = fail(name, max_rows=11)
    texts = fail(name, max_text_bytes=10)
    classes = fail(name, max_classes=2)

    assert "12 rows, the maximum is 11" in rows.detail
    assert rows.remedy.endswith("raise DIFFICULTY_MAX_ROWS (a setting of the operator)")
    assert "DIFFICULTY_MAX_TEXT_BYTES" in texts.remedy
    assert "3 classes, the maximum is 2" in classes.detail
    assert "DIFFICULTY_MAX_CLASSES" in classes.remedy


def test_class_names_fit_a_row_of_the_database(
    write: Callable[..., str], fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.dataset.MAX_NAMES_LENGTH", 1999)

    failure = fail(write(["a" * 1000, "b" * 1000]))

    assert "2,000 characters together" in failure.detail


def test_a_job_without_readable_images_ends_early(
    write: Callable[..., str], fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_observer, "MAX_UNREADABLE", 200)
    images = pa.array([png(1), png(2)] + [None] * 4998, pa.binary())

    failure = fail(write([0, 1] * 2500, images))

    assert failure.type == "image-error"
    assert "images cannot be read" in failure.detail
    assert int(failure.detail.split(" of ")[0].replace(",", "")) < 4998


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([b"\xff", b"a"] * 4, pa.binary()).view(pa.string()),
        pa.array(["x" * 2_000_000, "y"] * 4),
    ],
    ids=["not UTF-8", "long"],
)
def test_labels_that_cannot_be_used_are_named(
    write: Callable[..., str], fail: Fail, labels: pa.Array
) -> None:
    failure = fail(write(labels))

    assert failure.type == "dataset-error"
    assert len(failure.model_dump_json()) < 3000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"label": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "no sample with"),
        (b'{"label": "\\ud800"}', "not valid Unicode"),
        (b'{"label": 1, "label_name": "\\udfff"}', "not valid Unicode"),
        (b'{"label": ' + b"9" * 5000 + b"}", "no sample with"),
        (b'{"label": ' + b"9" * 50 + b"}", "out of range"),
    ],
    ids=["deep", "surrogate", "surrogate name", "digits", "large"],
)
def test_json_that_nobody_writes_is_named(
    photos: Path, fail: Fail, text: bytes, message: str
) -> None:
    with tarfile.open(photos.parent / "shard.tar", "w") as tar:
        for name, data in (("0.png", png(1)), ("0.json", text)):
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))

    failure = fail("shard.tar")

    assert failure.type == "dataset-error"
    assert message in failure.detail
