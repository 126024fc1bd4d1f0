"""What a job extracts, fits and scores is what its request says."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Engine

from api.jobs.rows import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.pipeline import ExtractRequest, ScoreRequest, score_dataset
from difficulty_service.score_file import read_scores
from difficulty_service.statistics.fit_options import FitOptions


def test_a_job_averages_each_image_with_its_mirror_image_on_request(
    claimed: Callable[..., Job],
    settings: Settings,
    sqlite_engine: Engine,
    artifacts: Artifacts,
    photos: Path,
    tmp_path: Path,
) -> None:
    network = BackboneOptions(flip=True)
    reading = DatasetOptions(shard_size=16)
    request = ExtractRequest(str(photos), tmp_path / "store", "builtin", reading, network)
    expected = tmp_path / "expected.parquet"
    score_dataset(request, ScoreRequest(expected, fit=FitOptions("ledoit-wolf")))

    def scores(job: Job) -> pa.Table:
        result = run_job(job, settings, sqlite_engine, artifacts, Observer())
        with artifacts.open(f"{result['prefix']}/scores.parquet") as file:
            return pq.read_table(file)

    flipped, plain = scores(claimed(flip=True)), scores(claimed())

    assert flipped.equals(read_scores(expected).table)
    assert not plain["rmd"].equals(flipped["rmd"])
