"""A job judges the tags of a table as the command does."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from api.http.principals import Principal
from api.http.problems import Problem
from api.jobs.dataset import find_dataset, open_job_tags
from api.jobs.queue import succeed
from api.jobs.store import Job
from api.jobs.submission import validate_submission
from api.results.thumbnails import Thumbnails, Wanted
from difficulty_service.base.errors import DatasetError
from difficulty_service.bodies.jobs import JobCreate
from difficulty_service.cli import create_app
from difficulty_service.scores.provenance import Provenance
from tests.api.stored_results import stored_result
from tests.api.worker.bench import Bench
from tests.factories import write_tagged_images
from tests.small_network import SMALL

pytestmark = pytest.mark.analysis("tags")


@pytest.fixture
def table(photos: Path) -> Path:
    """A table with images and their tags, in the root."""
    return write_tagged_images(photos.parent / "tagged.parquet")


@pytest.fixture
def job(bench: Bench, table: Path) -> Job:
    dataset = {"root": "pictures", "path": table.name}
    return bench.claim(dataset=dataset, tags="tags", shrinkage="auto")


def test_a_job_has_the_rows_of_the_command_and_pictures_of_them(
    bench: Bench, job: Job, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "expected.parquet"
    words = ("score", table, "--tags", "tags", "--backbone", SMALL, "--out", out)
    create_app()([*map(str, words)], result_action="return_value")
    expected = pq.read_table(out)

    result = bench.run(job)

    found = bench.table(result)
    assert found.equals(expected)
    assert (result.num_samples, result.num_scored) == (60, len(expected))
    assert result.class_names[::3] == ("blue", "not blue")
    assert result.num_doubtful == sum(p > 0.5 for p in expected["p_wrong"].to_pylist())
    with bench.artifacts.open(f"{result.prefix}/tags.parquet") as file:
        assert pq.read_table(file).equals(pq.read_table(tmp_path / "expected.by-tag.parquet"))
    known = Provenance.of(json.loads(found.schema.metadata[b"difficulty"]))
    assert known.tags is not None
    assert known.tags.table == "pictures/tagged.parquet"
    assert bench.artifacts.size(f"{result.prefix}/gaussians.safetensors") is None
    thumbnails = Thumbnails(bench.settings, bench.engine)
    picture = thumbnails.make(Wanted(job, expected["sample_id"][0].as_py(), 64))
    thumbnails.close()
    assert picture is not None
    with Image.open(picture) as image:
        assert image.size == (16, 16)


def test_a_job_with_more_tags_than_classes_are_allowed_is_refused(bench: Bench, job: Job) -> None:
    location = find_dataset(job.wanted.dataset, "", bench.settings, bench.engine)
    few = bench.settings.model_copy(update={"max_classes": 5})

    with pytest.raises(DatasetError, match="3 tags, the maximum is 2"):
        open_job_tags(job.wanted, location, few)


def test_a_job_of_tags_has_no_gaussians_for_others(bench: Bench, job: Job) -> None:
    succeed(bench.engine, job, stored_result())
    body = {"dataset": job.request["dataset"], "backbone": "builtin", "gaussians": job.id}
    caller = Principal("", frozenset({"write"}))

    with pytest.raises(Problem, match="judged tags"):
        validate_submission(JobCreate(**body), bench.settings, bench.engine, caller)
