"""What a job extracts, fits and scores is what its request says."""

from pathlib import Path

from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.images.corruptions import parse_corruption
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.score_columns import SCORERS
from difficulty_service.scoring.pipeline import ScoreRequest, score_dataset
from difficulty_service.settings.options import ScoringOptions
from tests.api.worker.bench import Bench
from tests.small_network import SMALL


def test_a_job_averages_each_image_with_its_mirror_image_on_request(
    bench: Bench, tmp_path: Path
) -> None:
    network = BackboneOptions(flip=True)
    plan = Plan(str(bench.photos), tmp_path / "store", SMALL, network=network)
    expected = tmp_path / "expected.parquet"
    score_dataset(plan, ScoreRequest(expected, ScoringOptions(shrinkage="ledoit-wolf")))

    jobs = bench.claim(flip=True), bench.claim()
    flipped, plain = (bench.table(bench.run(job)) for job in jobs)

    assert flipped.equals(read_scores(expected).table)
    assert not plain["rmd"].equals(flipped["rmd"])


def test_a_job_with_every_scorer_has_the_columns_of_the_command_line(
    bench: Bench, tmp_path: Path
) -> None:
    scorers = [name for name, scorer in SCORERS.items() if not scorer.needs_words]
    extraction = Plan(
        str(bench.photos),
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

    result = bench.run(bench.claim(scorers=scorers, near_duplicates=0.9, corrupt="fog:2"))

    assert bench.table(result).equals(read_scores(expected).table)
