"""Runs that were stopped resume as if they had not been, or are refused with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from difficulty_service.base.errors import TrainingError
from tests.small_runs import RunRecorder, run
from trainer.config import Recipe

MakeRecipe = Callable[..., Recipe]

STEPS_PER_EPOCH = 3
EPOCHS = 3


@pytest.fixture(params=["images", "probe"])
def with_memory(
    request: pytest.FixtureRequest, image_recipe: MakeRecipe, forgetful_probe: Recipe
) -> Recipe:
    """Runs with every kind of state that must survive a stop."""
    return image_recipe() if request.param == "images" else forgetful_probe


def read_history(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def without_time(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timed = {"seconds", "samples_per_second"}
    return [{key: record[key] for key in record.keys() - timed} for record in history]


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit, except for the time it took."""
    parameters, others = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert parameters.keys() == others.keys()
    for name, value in parameters.items():
        assert torch.equal(value, others[name]), name
    assert without_time(read_history(one)) == without_time(read_history(other))
    assert (one / "metrics.json").read_bytes() == (other / "metrics.json").read_bytes()


@pytest.mark.parametrize("steps", [1, STEPS_PER_EPOCH, STEPS_PER_EPOCH + 2])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    with_memory: Recipe, steps: int, tmp_path: Path
) -> None:
    run(with_memory, tmp_path / "whole")
    resumed = RunRecorder()

    finished = run(with_memory, tmp_path / "stopped", RunRecorder(stop_after=steps))
    finished_later = run(with_memory, tmp_path / "stopped", resumed, resume=True)

    assert (finished, finished_later) == (False, True)
    assert resumed.started_at == divmod(steps, STEPS_PER_EPOCH)
    assert len(resumed.steps) == EPOCHS * STEPS_PER_EPOCH - steps
    assert_same_run(tmp_path / "whole" / "seed-0", tmp_path / "stopped" / "seed-0")


def test_a_run_that_is_stopped_after_every_step_ends_the_same(
    with_memory: Recipe, tmp_path: Path
) -> None:
    run(with_memory, tmp_path / "whole")
    starts = 1

    while not run(with_memory, tmp_path / "stopped", RunRecorder(stop_after=1), resume=starts > 1):
        starts += 1

    assert starts == EPOCHS * STEPS_PER_EPOCH
    assert_same_run(tmp_path / "whole" / "seed-0", tmp_path / "stopped" / "seed-0")


def test_a_stop_at_the_last_step_finishes_the_run(forgetful_probe: Recipe, tmp_path: Path) -> None:
    recorder = RunRecorder(stop_after=EPOCHS * STEPS_PER_EPOCH)

    finished = run(forgetful_probe, tmp_path, recorder)

    assert finished
    assert (tmp_path / "seed-0" / "metrics.json").exists()


def test_a_run_with_one_step_per_epoch_can_be_stopped(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = probe_recipe(training={"batch_size": 1000})

    finished = run(recipe, tmp_path, RunRecorder(stop_after=1))

    assert not finished
    assert len(read_history(tmp_path / "seed-0")) == 1


def test_the_checkpoint_interval_does_not_affect_the_parameters(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    run(probe_recipe(), tmp_path / "often")

    run(probe_recipe(training={"checkpoint_every": 2}), tmp_path / "seldom")

    assert_same_run(tmp_path / "often" / "seed-0", tmp_path / "seldom" / "seed-0")


def test_a_folder_that_holds_a_run_is_refused(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    run(probe_recipe(), tmp_path)

    with pytest.raises(
        TrainingError,
        match=r"seed-0 already holds a run; continue it with resume=True, or use another out",
    ):
        run(probe_recipe(), tmp_path)


def test_resuming_a_finished_run_changes_nothing(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    run(probe_recipe(), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "seed-0").iterdir()}
    recorder = RunRecorder()

    finished = run(probe_recipe(), tmp_path, recorder, resume=True)

    assert finished
    assert recorder.started_at is None
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "seed-0").iterdir()} == before


def test_resuming_a_run_that_never_started_starts_it(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    finished = run(probe_recipe(), tmp_path, resume=True)

    assert finished


@pytest.mark.parametrize("steps", [2, None], ids=["stopped", "finished"])
def test_another_recipe_cannot_resume_a_run(
    probe_recipe: MakeRecipe, steps: int | None, tmp_path: Path
) -> None:
    run(probe_recipe(), tmp_path, RunRecorder(stop_after=steps))
    other = probe_recipe(optimiser={"momentum": 0.8})

    with pytest.raises(TrainingError, match=r"recipe\.optimiser\.momentum: 0\.9 then, 0\.8 now"):
        run(other, tmp_path, resume=True)


def test_settings_that_do_not_affect_the_parameters_may_change(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    run(probe_recipe(), tmp_path, RunRecorder(stop_after=2))
    other = probe_recipe(training={"evaluation_batch_size": 7, "checkpoint_every": 2})

    finished = run(other, tmp_path, resume=True)

    assert finished


def test_other_data_at_the_same_location_are_refused(
    probe_recipe: MakeRecipe, write_features: Callable[..., str], tmp_path: Path
) -> None:
    recipe = probe_recipe(data={"train": write_features(tmp_path / "data")})
    run(recipe, tmp_path / "run", RunRecorder(stop_after=2))
    write_features(tmp_path / "data", num_samples=93)

    with pytest.raises(TrainingError, match="training_samples: "):
        run(recipe, tmp_path / "run", resume=True)


def test_a_damaged_checkpoint_is_named(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    run(probe_recipe(), tmp_path, RunRecorder(stop_after=2))
    path = tmp_path / "seed-0" / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:500])

    with pytest.raises(TrainingError, match=r"seed-0/checkpoint\.pt cannot be read.*delete it"):
        run(probe_recipe(), tmp_path, resume=True)


def test_a_temporary_file_of_a_killed_run_is_removed(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    run(probe_recipe(), tmp_path, RunRecorder(stop_after=2))
    leftover = tmp_path / "seed-0" / ".checkpoint.pt.4242.part"
    leftover.write_bytes(b"half")

    run(probe_recipe(), tmp_path, resume=True)

    assert not leftover.exists()


def test_another_choice_of_the_final_epoch_cannot_resume_a_run(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    run(probe_recipe(), tmp_path, RunRecorder(stop_after=4))

    with pytest.raises(TrainingError, match=r"recipe\.training\.final"):
        run(probe_recipe(training={"final": "best"}), tmp_path, resume=True)
