"""The uncertainty head of a run: added to a classifier, resumed, and refused where it differs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.base.checked_safetensors import read_tensors
from difficulty_service.base.errors import TrainingError
from difficulty_service.features.description import FeatureDescription, read_description
from difficulty_service.features.store import FeatureStore
from trainer.config import Recipe
from trainer.run_folder import read_history, read_json
from trainer.runs.train import RunCallbacks, RunRequest, run_seed
from trainer.uncertainty.head import read_head

EPOCHS = 4
HEAD = {"epochs": EPOCHS, "hidden": [8], "batch_size": 15, "learning_rate": 0.01}
RUN_FILES = ("model.safetensors", "metrics.json", "validation.npz", "test.npz")

MakeRecipe = Callable[..., Recipe]


def run_head(recipe: Recipe, folder: Path, *, stop_after: int = 0, resume: bool = False) -> bool:
    """Runs a seed that stops after some epochs of the head; gives whether it is finished."""
    epochs: list[object] = []
    callbacks = RunCallbacks(
        on_head_epoch=epochs.append, should_stop=lambda: 0 < stop_after <= len(epochs)
    )
    return run_seed(RunRequest(recipe, 0, folder, "cpu", resume), callbacks)


def head_of(folder: Path) -> dict[str, list[float]]:
    tensors, _ = read_tensors(folder / "seed-0" / "head.safetensors")
    return {name: values.flatten().tolist() for name, values in tensors.items()}


@pytest.fixture
def with_head(probe_recipe: MakeRecipe, test_features: str) -> Recipe:
    return probe_recipe(data={"test": test_features}, uncertainty=HEAD)


@pytest.fixture
def without_head(probe_recipe: MakeRecipe, test_features: str) -> Recipe:
    return probe_recipe(data={"test": test_features})


def test_a_head_leaves_the_classifier_as_it_is(
    with_head: Recipe, without_head: Recipe, tmp_path: Path
) -> None:
    run_head(with_head, tmp_path / "with")
    run_head(without_head, tmp_path / "without")

    for name in RUN_FILES:
        one, other = (tmp_path / each / "seed-0" / name for each in ("with", "without"))
        assert one.read_bytes() == other.read_bytes(), name
    assert not (tmp_path / "without" / "seed-0" / "head.safetensors").exists()


def test_the_metrics_of_a_head_are_those_of_the_held_out_samples(
    with_head: Recipe, tmp_path: Path
) -> None:
    finished = run_head(with_head, tmp_path)

    metrics = read_json(tmp_path / "seed-0" / "head_metrics.json")
    history = read_history(tmp_path / "seed-0" / "head_history.jsonl")
    assert finished
    assert [record["epoch"] for record in history] == [1, 2, 3, 4]
    assert (metrics["validation"]["num_samples"], metrics["test"]["num_samples"]) == (18, 31)
    assert metrics["validation"]["auroc_correct"] == history[-1]["validation_auroc_correct"]
    assert 0 < metrics["test"]["r_auroc"] < 1
    assert 0 < metrics["test"]["recall_at_1"] < 1


@pytest.mark.parametrize("stop_after", [1, 3])
def test_a_head_that_was_stopped_ends_as_if_it_had_not_been(
    with_head: Recipe, stop_after: int, tmp_path: Path
) -> None:
    run_head(with_head, tmp_path / "whole")

    finished = run_head(with_head, tmp_path / "stopped", stop_after=stop_after)
    assert not finished
    assert not (tmp_path / "stopped" / "seed-0" / "head.safetensors").exists()
    starts = 1
    while not run_head(with_head, tmp_path / "stopped", stop_after=stop_after, resume=True):
        starts += 1

    assert starts == -(-EPOCHS // stop_after) - 1
    assert head_of(tmp_path / "stopped") == head_of(tmp_path / "whole")
    metrics = [tmp_path / name / "seed-0" / "head_metrics.json" for name in ("whole", "stopped")]
    assert metrics[0].read_bytes() == metrics[1].read_bytes()


def test_a_head_can_be_added_to_a_finished_run(
    with_head: Recipe, without_head: Recipe, tmp_path: Path
) -> None:
    run_head(with_head, tmp_path / "at once")
    run_head(without_head, tmp_path / "later")

    finished = run_head(with_head, tmp_path / "later", resume=True)

    assert finished
    assert head_of(tmp_path / "later") == head_of(tmp_path / "at once")


def test_a_head_knows_what_the_precision_of_its_features_was_chosen_by(
    probe_recipe: MakeRecipe, features: str, tmp_path: Path
) -> None:
    pilot = {"num_images": 9, "float32": 1.0, "bfloat16": 2.0, "agreement": 0.9996}
    compared = {"precision": "bfloat16", "precision_pilot": pilot}
    store = tmp_path / "features"
    shutil.copytree(features, store)
    FeatureStore(
        store, FeatureDescription.of({**read_description(store).to_json(), **compared})
    ).write_description()

    run_head(probe_recipe(data={"train": str(store)}, uncertainty=HEAD), tmp_path / "run")

    known = read_head(tmp_path / "run").description["features"]
    assert {key: known[key] for key in compared} == compared


def test_a_finished_head_stays_as_it_is(with_head: Recipe, tmp_path: Path) -> None:
    run_head(with_head, tmp_path)
    file = tmp_path / "seed-0" / "head.safetensors"
    written = file.stat().st_mtime_ns

    finished = run_head(with_head, tmp_path, resume=True)

    assert finished
    assert file.stat().st_mtime_ns == written


@pytest.mark.parametrize("stop_after", [0, 2])
def test_a_head_of_other_settings_cannot_resume(
    probe_recipe: MakeRecipe, stop_after: int, tmp_path: Path
) -> None:
    run_head(probe_recipe(uncertainty=HEAD), tmp_path, stop_after=stop_after)
    other = probe_recipe(uncertainty=HEAD | {"margin": 0.5})

    with pytest.raises(TrainingError, match=r"uncertainty\.margin: 0\.1 then, 0\.5 now"):
        run_head(other, tmp_path, resume=True)


def test_a_damaged_checkpoint_of_a_head_is_named(with_head: Recipe, tmp_path: Path) -> None:
    run_head(with_head, tmp_path, stop_after=1)
    checkpoint = tmp_path / "seed-0" / "head_checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])

    with pytest.raises(TrainingError, match=r"head_checkpoint\.pt cannot be read"):
        run_head(with_head, tmp_path, resume=True)


def test_a_missing_model_is_named(with_head: Recipe, without_head: Recipe, tmp_path: Path) -> None:
    run_head(without_head, tmp_path)
    (tmp_path / "seed-0" / "model.safetensors").unlink()

    with pytest.raises(TrainingError, match=r"model\.safetensors is missing"):
        run_head(with_head, tmp_path, resume=True)


def test_a_head_needs_neither_validation_nor_test_samples(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = probe_recipe(data={"validation": 0.0}, uncertainty=HEAD)

    assert run_head(recipe, tmp_path)

    assert read_json(tmp_path / "seed-0" / "head_metrics.json").keys() == {"identity"}
