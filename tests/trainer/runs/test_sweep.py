"""Sweeps are planned and checked as a whole before anything is trained."""

from dataclasses import replace
from pathlib import Path

import pytest

from difficulty_service.base.errors import ConfigError, ScoreFileError, TrainingError
from tests.factories import write_score_file
from trainer.config import EqualWeights
from trainer.run_folder import write_run
from trainer.runs.sweep import SweepRequest, plan_sweep
from trainer.runs.train import fixed_part

RECIPE = """
name = "probe"
[data]
kind = "features"
train = "features"
[model]
name = "probe"
[regulariser]
alpha = 0.3
weights = "scores"
[training]
epochs = 4
seeds = [0, 1]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "probe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    return write_score_file(tmp_path / "scores.parquet", {"a": 1.0}, backbone="builtin")


@pytest.fixture
def request_of(recipe: Path, tmp_path: Path, scores: Path) -> SweepRequest:
    return SweepRequest(str(recipe), (), scores=scores, out=tmp_path / "sweep")


@pytest.fixture
def plain_recipe(recipe: Path) -> Path:
    text = recipe.read_text().replace('weights = "scores"', "")
    recipe.write_text(text)
    return recipe


def test_every_combination_is_a_run_with_an_honest_name(request_of: SweepRequest) -> None:
    over = ("regulariser.alpha=0.1,0.30", "training.epochs=2,3")

    runs = plan_sweep(replace(request_of, over=over))

    assert [run.folder.name for run in runs] == [
        "regulariser.alpha=0.1,training.epochs=2",
        "regulariser.alpha=0.1,training.epochs=3",
        "regulariser.alpha=0.3,training.epochs=2",
        "regulariser.alpha=0.3,training.epochs=3",
    ]
    assert [(run.recipe.regulariser.alpha, run.recipe.training.epochs) for run in runs] == [
        (0.1, 2),
        (0.1, 3),
        (0.3, 2),
        (0.3, 3),
    ]
    assert runs[0].recipe.name == "probe, regulariser.alpha=0.1, training.epochs=2"
    assert {run.recipe.regulariser.scores for run in runs} == {str(request_of.scores)}


def test_alpha_0_is_plain_and_one_run_whatever_the_weights(request_of: SweepRequest) -> None:
    over = ("regulariser.alpha=0,0.3", "regulariser.score_temperature=0.5,0.7")

    runs = plan_sweep(replace(request_of, over=over))

    assert [run.label for run in runs] == [
        "regulariser.alpha=0",
        "regulariser.alpha=0.3, regulariser.score_temperature=0.5",
        "regulariser.alpha=0.3, regulariser.score_temperature=0.7",
    ]
    assert runs[0].recipe.regulariser == EqualWeights()


def test_names_and_lists_can_be_swept(recipe: Path, tmp_path: Path) -> None:
    over = ("loss.name=focal,brier", "model.hidden=[8],[16, 8]")
    settings = ("regulariser.weights=constant",)

    runs = plan_sweep(SweepRequest(str(recipe), over, settings, out=tmp_path / "sweep"))

    assert [(run.recipe.loss.name, run.recipe.model.options["hidden"]) for run in runs] == [
        ("focal", (8,)),
        ("focal", (16, 8)),
        ("brier", (8,)),
        ("brier", (16, 8)),
    ]


def test_folders_of_similar_values_differ(plain_recipe: Path, tmp_path: Path) -> None:
    over = (f"data.train={tmp_path}/a/b,{tmp_path}/a-b",)

    runs = plan_sweep(SweepRequest(str(plain_recipe), over, out=tmp_path / "sweep"))

    assert len({run.folder for run in runs}) == 2
    assert {run.folder.parent for run in runs} == {tmp_path / "sweep"}
    assert all(len(run.folder.name) < 140 for run in runs)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (("loss.gama=1,2",), r"2 of 2 combinations are invalid.*loss.gama=1.*no such key"),
        (("training.epochs=2,0",), r"1 of 2 combinations.*training.epochs = 0"),
        (("optimiser.learning_rate=0.1,x",), r"1 of 2 combinations.*must be a number"),
        (("loss.name=focal,brier", "loss.gamma=2"), r"1 of 2 combinations.*gamma: no such key"),
        (("regulariser.alpha=0.1,-1",), r"1 of 2 combinations.*regulariser.alpha"),
        (("regulariser.alpha=0,0.0",), "0 twice"),
        (("regulariser.alpha=",), "no value"),
        (("regulariser.alpha",), "names no values"),
        (("alpha=0,1",), "names no values"),
        (("training.epochs=1", "training.epochs=2"), "swept twice"),
        (("training.seeds=[0],[1]", "training.batch_size=8"), "both set and swept"),
        ((), "a sweep without a key"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    request_of: SweepRequest, over: tuple[str, ...], message: str
) -> None:
    settings = ("training.batch_size=16",)

    with pytest.raises(ConfigError, match=message):
        plan_sweep(replace(request_of, over=over, settings=settings))


def test_scores_that_no_run_uses_are_refused(request_of: SweepRequest) -> None:
    with pytest.raises(ConfigError, match="has no effect"):
        plan_sweep(replace(request_of, over=("regulariser.alpha=0",)))


def test_scores_that_are_not_named_are_asked_for(request_of: SweepRequest) -> None:
    with pytest.raises(ConfigError, match="no score file is named"):
        plan_sweep(replace(request_of, over=("regulariser.alpha=0,0.3",), scores=None))


def test_a_score_file_is_opened_before_anything_is_trained(
    request_of: SweepRequest, tmp_path: Path
) -> None:
    missing = tmp_path / "none.parquet"

    with pytest.raises(ScoreFileError, match=r"none\.parquet"):
        plan_sweep(replace(request_of, over=("regulariser.alpha=0,0.3",), scores=missing))


def test_runs_that_exist_are_kept_only_where_that_is_asked_for(request_of: SweepRequest) -> None:
    request = replace(request_of, over=("regulariser.alpha=0,0.3",))
    folder = plan_sweep(request)[1].folder / "seed-1"
    folder.mkdir(parents=True)
    recipe = fixed_part(plan_sweep(request)[1].recipe)
    write_run(folder, {"identity": {"recipe": recipe}})

    with pytest.raises(TrainingError, match=r"alpha=0\.3 already holds a run, one of 1"):
        plan_sweep(request)
    runs = plan_sweep(replace(request, resume=True))

    assert [(run.num_started, run.num_finished) for run in runs] == [(0, 0), (1, 0)]


def test_a_sweep_with_other_settings_does_not_resume(request_of: SweepRequest) -> None:
    request = replace(request_of, over=("regulariser.alpha=0,0.3",), resume=True)
    run = plan_sweep(request)[1]
    folder = run.folder / "seed-1"
    folder.mkdir(parents=True)
    write_run(folder, {"identity": {"recipe": fixed_part(run.recipe)}})

    with pytest.raises(TrainingError, match=r"belongs to another run.*epochs"):
        plan_sweep(replace(request, settings=("training.epochs=7",)))
