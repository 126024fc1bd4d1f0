"""How samples were learned as a score file, which the other commands read as any."""

from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.analyses.audit.audit import AuditOptions, audit
from difficulty_service.analyses.consensus.consensus import consensus_of
from difficulty_service.base.errors import TrainingError
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.measures import read_measure
from trainer.config import Recipe
from trainer.reports.dynamics import write_dynamics_scores
from trainer.runs.train import RunCallbacks, RunRequest, run_seed
from trainer.training.dynamics import COLUMNS

pytestmark = [pytest.mark.analysis("audit"), pytest.mark.analysis("consensus")]

Make = Callable[..., Recipe]


@pytest.fixture(scope="module")
def run(probe_recipe: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A probe with two seeds that has recorded how it learned its samples."""
    recipe = probe_recipe(training={"epochs": 3, "dynamics": True})
    folder = tmp_path_factory.mktemp("run")
    for seed in (0, 1):
        run_seed(RunRequest(recipe, seed, folder, "cpu"))
    return folder


def test_the_file_has_the_samples_of_all_seeds_and_is_read_as_any(
    run: Path, tmp_path: Path
) -> None:
    both, first = tmp_path / "both.parquet", tmp_path / "first.parquet"

    write_dynamics_scores(both, run, [0, 1])
    write_dynamics_scores(first, run, [0])

    table = read_scores(both).table
    assert set(COLUMNS) < set(table.column_names)
    assert table.num_rows > read_scores(first).table.num_rows
    assert read_measure(both, None)["score"].equals(table["el2n"])
    assert read_measure(both, "forgetting")["score"].equals(table["forgetting"])
    by_rank = AuditOptions("sample_id", "forgetting", score_column="aum")
    assert audit(table, read_scores(first).table, by_rank).num_joined > 0
    agreed = consensus_of([both, first]).table
    assert set(COLUMNS) < set(agreed.column_names)


def test_seeds_are_averaged_over_those_that_had_the_sample(run: Path, tmp_path: Path) -> None:
    tables = []
    for seeds in ([0], [1], [0, 1]):
        path = tmp_path / f"{len(tables)}.parquet"
        write_dynamics_scores(path, run, seeds)
        rows = read_scores(path).table.to_pylist()
        tables.append({row["sample_id"]: row["el2n"] for row in rows})

    first, second, both = tables
    assert both.keys() == first.keys() | second.keys()
    for sample_id, value in both.items():
        known = [each[sample_id] for each in (first, second) if sample_id in each]
        assert value == pytest.approx(sum(known) / len(known))


def test_a_run_that_resumes_has_learned_its_samples_as_one_that_never_stopped(
    probe_recipe: Make, run: Path, tmp_path: Path
) -> None:
    recipe = probe_recipe(training={"epochs": 3, "dynamics": True})
    stop = RunCallbacks(should_stop=lambda: True)

    finished = run_seed(RunRequest(recipe, 0, tmp_path, "cpu"), stop)
    while not finished:
        finished = run_seed(RunRequest(recipe, 0, tmp_path, "cpu", resume=True), stop)

    name = "seed-0/dynamics.parquet"
    assert (tmp_path / name).read_bytes() == (run / name).read_bytes()


def test_a_run_that_has_recorded_nothing_is_refused(probe_recipe: Make, tmp_path: Path) -> None:
    run_seed(RunRequest(probe_recipe(training={"epochs": 1}), 0, tmp_path, "cpu"))

    with pytest.raises(TrainingError, match="does not say how its samples were learned"):
        write_dynamics_scores(tmp_path / "scores.parquet", tmp_path, [0])
