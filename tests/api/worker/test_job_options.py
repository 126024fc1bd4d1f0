"""What a job extracts, fits and scores is what its request says."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Engine

from api.jobs.store import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.images.corruptions import parse_corruption
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.score_columns import SCORERS
from difficulty_service.scoring.pipeline import ScoreRequest, score_dataset
from difficulty_service.settings.options import ScoringOptions
from tests.small_network import SMALL


def test_a_job_averages_each_image_with_its_mirror_image_on_request(
    claimed: Callable[..., Job],
    settings: Settings,
    sqlite_engine: Engine,
    artifacts: Artifacts,
    photos: Path,
    tmp_path: Path,
) -> None:
    network = BackboneOptions(flip=True)
    plan = Plan(str(photos), tmp_path / "store", SMALL, network=network)
    expected = tmp_path / "expected.parquet"
    score_dataset(plan, ScoreRequest(expected, ScoringOptions(shrinkage="ledoit-wolf")))

    def scores(job: Job) -> pa.Table:
        result = run_job(job, settings, sqlite_engine, artifacts, Observer())
        with artifacts.open(f"{result.prefix}/scores.parquet") as file:
            return pq.read_table(file)

    flipped, plain = scores(claimed(flip=True)), scores(claimed())

    assert flipped.equals(read_scores(expected).table)
    assert not plain["rmd"].equals(flipped["rmd"])


def test_a_job_with_every_scorer_has_the_columns_of_the_command_line(
    claimed: Callable[..., Job],
    settings: Settings,
    sqlite_engine: Engine,
    artifacts: Artifacts,
    photos: Path,
    tmp_path: Path,
) -> None:
    scorers = [name for name, scorer in SCORERS.items() if not scorer.needs_words]
    extraction = Plan(
        str(photos),
        tmp_path / "store",
        SMALL,
        options=ExtractOptions(corruption=parse_corruption("fog:2", 0)),
    )
    expected = tmp_path / "expected.parquet"
    score_dataset(
        extraction,
        ScoreRequest(
            expected, ScoringOptions(scorers=scorers, shrinkage="ledoit-wolf", near_duplicates=0.9)
        ),
    )

    result = run_job(
        claimed(scorers=scorers, near_duplicates=0.9, corrupt="fog:2"),
        settings,
        sqlite_engine,
        artifacts,
        Observer(),
    )

    with artifacts.open(f"{result.prefix}/scores.parquet") as file:
        assert pq.read_table(file).equals(read_scores(expected).table)
