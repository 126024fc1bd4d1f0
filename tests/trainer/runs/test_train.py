"""Complete runs in this process, and the files that they write."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import ConfigError, TrainingError
from tests.factories import write_score_file
from tests.small_runs import RunRecorder, run
from trainer.config import Recipe
from trainer.data import open_splits
from trainer.evaluation.prediction_file import read_predictions
from trainer.models import build_model
from trainer.recipes.file import recipe_as_dict
from trainer.run_folder import read_inputs

MakeRecipe = Callable[..., Recipe]


HISTORY_KEYS = {
    "epoch",
    "learning_rate",
    "train_loss",
    "train_accuracy",
    "seconds",
    "samples_per_second",
    "validation_accuracy",
    "validation_nll",
    "validation_ece",
    "validation_adaptive_ece",
    "validation_entropy",
    "validation_nll_right",
    "validation_nll_wrong",
    "validation_entropy_right",
    "validation_entropy_wrong",
    "norm_last_weights",
    "norm_last_gradient",
}


def read_history(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_each_seed_has_its_own_folder_and_parameters(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    for seed in (0, 1):
        run(probe_recipe(), tmp_path, seed=seed)

    first, second = (
        load_file(tmp_path / f"seed-{seed}" / "model.safetensors")["network.0.weight"]
        for seed in (0, 1)
    )
    assert not torch.equal(first, second)


def test_a_run_writes_its_predictions_and_their_metrics(
    forgetful_probe: Recipe, tmp_path: Path
) -> None:
    recorder = RunRecorder()
    run(forgetful_probe, tmp_path, recorder)
    folder = tmp_path / "seed-0"

    history = read_history(folder)
    metrics = load_checked((folder / "metrics.json").read_text())
    predictions = read_predictions(folder / "test.npz")
    spec, class_names = read_inputs(folder / "inputs.json")

    assert [record["epoch"] for record in history] == [1, 2, 3]
    assert all(record.keys() == HISTORY_KEYS for record in history)
    assert recorder.epochs == history
    assert class_names == ("bird", "cat", "dog")
    assert spec.shape == (6,)
    assert predictions.logits.shape == (31, 3)
    assert len(read_predictions(folder / "validation.npz").targets) == 18
    saved = load_checked((folder / "recipe.json").read_text())
    assert saved["recipe"] == recipe_as_dict(forgetful_probe)
    assert saved["seed"] == 0
    accuracy = (predictions.logits.argmax(1) == predictions.targets).double().mean().item()
    assert metrics["raw"]["accuracy"] == pytest.approx(accuracy)
    assert metrics["temperature_nll"]["temperature"] > 0
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_the_saved_model_is_the_one_that_was_evaluated(
    image_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = image_recipe()
    run(recipe, tmp_path)
    splits = open_splits(recipe.data, 0, torch.device("cpu"))
    assert splits.validation is not None
    model = build_model(recipe.model, splits.spec, 3)
    model.load_state_dict(load_file(tmp_path / "seed-0" / "model.safetensors"))
    model.eval()

    with torch.no_grad():
        (inputs,) = splits.validation.inputs.batches([torch.arange(12)], None)
        logits: Tensor = model(inputs)

    predictions = read_predictions(tmp_path / "seed-0" / "validation.npz")
    torch.testing.assert_close(predictions.logits, logits)
    checkpoint = torch.load(tmp_path / "seed-0" / "checkpoint.pt")
    name = "network.classifier.weight"
    kept = model.state_dict()[name]
    assert torch.equal(kept, checkpoint["average"][f"module.{name}"])
    assert not torch.equal(kept, checkpoint["model"][name])


@pytest.mark.slow
def test_tensorboard_shows_each_epoch_once_after_a_resume(
    forgetful_probe: Recipe, tmp_path: Path
) -> None:
    run(forgetful_probe, tmp_path, RunRecorder(stop_after=4))
    # TensorBoard reads files by name: the second they began in, and a count without leading zeros,
    # by which the hundredth file of a process that begins in the same second precedes the others.
    time.sleep(1)
    run(forgetful_probe, tmp_path, resume=True)
    events = EventAccumulator(str(tmp_path / "seed-0" / "tensorboard"))
    events.Reload()

    tags = events.Tags()["scalars"]
    losses = events.Scalars("train/loss")

    assert {"train/accuracy", "validation/adaptive_ece", "learning/rate"} <= set(tags)
    assert [event.step for event in losses] == [1, 2, 3]
    expected = [record["train_loss"] for record in read_history(tmp_path / "seed-0")]
    assert [event.value for event in losses] == pytest.approx(expected)


def test_without_validation_samples_there_are_no_validation_metrics(
    probe_recipe: MakeRecipe, test_features: str, tmp_path: Path
) -> None:
    run(probe_recipe(data={"validation": 0.0, "test": test_features}), tmp_path)

    folder = tmp_path / "seed-0"
    assert not any(key.startswith("validation") for key in read_history(folder)[0])
    assert not (folder / "validation.npz").exists()
    metrics = load_checked((folder / "metrics.json").read_text())
    assert metrics.keys() == {"raw"}


def test_without_a_test_set_the_validation_samples_are_evaluated_without_temperatures(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    run(probe_recipe(), tmp_path)

    metrics = load_checked((tmp_path / "seed-0" / "metrics.json").read_text())
    predictions = read_predictions(tmp_path / "seed-0" / "validation.npz")
    accuracy = (predictions.logits.argmax(1) == predictions.targets).double().mean().item()
    assert metrics.keys() == {"raw"}
    assert metrics["raw"]["accuracy"] == pytest.approx(accuracy)


def test_without_either_the_model_is_still_saved(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    finished = run(probe_recipe(data={"validation": 0.0}), tmp_path)

    assert finished
    assert (tmp_path / "seed-0" / "model.safetensors").exists()
    assert load_checked((tmp_path / "seed-0" / "metrics.json").read_text()) == {}


def test_label_noise_changes_training_labels_only(
    probe_recipe: MakeRecipe, test_features: str, tmp_path: Path
) -> None:
    clean = probe_recipe(data={"test": test_features})
    noisy = probe_recipe(data={"test": test_features, "label_noise": 0.5})

    run(clean, tmp_path / "clean")
    run(noisy, tmp_path / "noisy")

    for name in ("validation.npz", "test.npz"):
        predictions, noisy_predictions = (
            read_predictions(tmp_path / folder / "seed-0" / name) for folder in ("clean", "noisy")
        )
        assert torch.equal(predictions.targets, noisy_predictions.targets)
        assert not torch.equal(predictions.logits, noisy_predictions.logits)


@pytest.fixture
def scores(probe_recipe: MakeRecipe, tmp_path: Path) -> Path:
    """A score for each training and validation sample."""
    ids = open_splits(probe_recipe().data, 0, torch.device("cpu")).all_ids
    scores = {sample_id: float(number) for number, sample_id in enumerate(ids)}
    return write_score_file(tmp_path / "scores.parquet", scores)


def test_difficulty_weights_change_the_parameters_and_are_described(
    probe_recipe: MakeRecipe, scores: Path, tmp_path: Path
) -> None:
    weighted = {"alpha": 0.3, "weights": "scores", "scores": str(scores)}
    run(probe_recipe(regulariser={"alpha": 0.3}), tmp_path / "constant")

    run(probe_recipe(regulariser=weighted), tmp_path / "weighted")

    distribution = load_checked((tmp_path / "weighted" / "seed-0" / "weights.json").read_text())
    assert distribution["count"] == 72
    constant, weighted_parameters = (
        load_file(tmp_path / name / "seed-0" / "model.safetensors")["network.0.weight"]
        for name in ("constant", "weighted")
    )
    assert not torch.allclose(constant, weighted_parameters)


def test_weights_from_scores_need_a_score_file(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = probe_recipe(regulariser={"alpha": 0.3, "weights": "scores"})

    with pytest.raises(ConfigError, match=r"add scores='scores\.parquet'"):
        run(recipe, tmp_path)


def test_a_loss_that_is_not_finite_ends_the_run_with_a_remedy(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = probe_recipe(
        data={"validation": 0.0},
        model={"hidden": [8, 8]},
        optimiser={"learning_rate": 1e9},
        training={"epochs": 20},
    )

    with pytest.raises(
        TrainingError, match=r"loss is no longer finite.*lower optimiser\.learning_rate"
    ):
        run(recipe, tmp_path)


def test_predictions_that_are_not_finite_end_the_run_with_a_remedy(
    image_recipe: MakeRecipe, tmp_path: Path
) -> None:
    # Batch normalisation keeps the loss finite, while its statistics overflow.
    wild = {"learning_rate": 1e9, "gradient_clip": 1e9}
    recipe = image_recipe(optimiser=wild, training={"epochs": 20})

    with pytest.raises(
        TrainingError, match=r"predictions are no longer finite.*lower optimiser\.learning_rate"
    ):
        run(recipe, tmp_path)


def test_half_precision_needs_a_gpu(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="'fp16' needs a CUDA device"):
        run(probe_recipe(training={"precision": "fp16"}), tmp_path)
