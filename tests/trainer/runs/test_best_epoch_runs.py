"""Runs whose best epoch is final, and the file of a loss with memory."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from difficulty_service.base.checksums import load_checked
from tests.small_runs import RunRecorder, run
from trainer.config import Recipe
from trainer.data import open_splits
from trainer.evaluation.prediction_file import read_predictions
from trainer.models import build_model

MakeRecipe = Callable[..., Recipe]

FILES = ("model.safetensors", "model-last.safetensors", "final.json", "metrics.json")
EPOCHS = 4


@pytest.fixture(params=["images", "probe"])
def best_recipe(
    request: pytest.FixtureRequest, image_recipe: MakeRecipe, probe_recipe: MakeRecipe
) -> Recipe:
    """Runs that become worse after their best epoch."""
    training = {"epochs": EPOCHS, "final": "best", "best_by": "nll"}
    if request.param == "images":
        return image_recipe(training=training | {"ema_decay": 0.5})
    return probe_recipe(
        data={"label_noise": 0.6},
        optimiser={"learning_rate": 2.0},
        schedule={"name": "constant"},
        training=training,
    )


def history_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def test_the_model_of_the_best_epoch_is_evaluated_and_the_last_is_kept_beside_it(
    best_recipe: Recipe, tmp_path: Path
) -> None:
    run(best_recipe, tmp_path)

    folder = tmp_path / "seed-0"
    losses = [record["validation_nll"] for record in history_of(folder)]
    final = load_checked((folder / "final.json").read_text())
    assert final == {
        "final": "best",
        "epoch": losses.index(min(losses)) + 1,
        "epochs": EPOCHS,
        "best_by": "nll",
        "validation_nll": min(losses),
        "last_validation_nll": losses[-1],
    }
    metrics = load_checked((folder / "metrics.json").read_text())
    assert metrics["raw"]["nll"] == pytest.approx(min(losses), abs=1e-6)
    best, last = (load_file(folder / name) for name in FILES[:2])
    is_last = final["epoch"] == EPOCHS
    assert all(torch.equal(value, last[name]) for name, value in best.items()) is is_last


def test_the_saved_model_makes_the_saved_predictions(best_recipe: Recipe, tmp_path: Path) -> None:
    run(best_recipe, tmp_path)
    splits = open_splits(best_recipe.data, 0, torch.device("cpu"))
    assert splits.validation is not None
    model = build_model(best_recipe.model, splits.spec, 3)
    model.load_state_dict(load_file(tmp_path / "seed-0" / "model.safetensors"))

    with torch.no_grad():
        positions = torch.arange(len(splits.validation))
        (inputs,) = splits.validation.inputs.batches([positions], None)
        logits: Tensor = model.eval()(inputs)

    saved = read_predictions(tmp_path / "seed-0" / "validation.npz").logits
    torch.testing.assert_close(saved, logits)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
def test_a_run_stopped_after_every_step_ends_with_the_same_bytes(
    best_recipe: Recipe, every: int, tmp_path: Path
) -> None:
    run(best_recipe, tmp_path / "whole")
    starts = 1

    while not run(
        best_recipe, tmp_path / "stopped", RunRecorder(stop_after=every), resume=starts > 1
    ):
        starts += 1

    assert starts > 1
    for name in FILES:
        whole, stopped = (tmp_path / each / "seed-0" / name for each in ("whole", "stopped"))
        assert whole.read_bytes() == stopped.read_bytes(), name


def test_a_run_killed_before_its_metrics_were_written_ends_the_same(
    best_recipe: Recipe, tmp_path: Path
) -> None:
    run(best_recipe, tmp_path)
    folder = tmp_path / "seed-0"
    before = {name: (folder / name).read_bytes() for name in FILES}
    for name in FILES:
        (folder / name).unlink()

    run(best_recipe, tmp_path, resume=True)

    assert {name: (folder / name).read_bytes() for name in FILES} == before


def test_the_last_epoch_is_final_by_default(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    run(probe_recipe(), tmp_path)

    folder = tmp_path / "seed-0"
    assert load_checked((folder / "final.json").read_text()) == {
        "final": "last",
        "epoch": 3,
        "epochs": 3,
    }
    assert not (folder / "model-last.safetensors").exists()


def test_adafocal_writes_its_bins_of_every_epoch(probe_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = probe_recipe(loss={"name": "adafocal", "num_bins": 4}, training={"epochs": 2})
    run(recipe, tmp_path / "whole")
    run(recipe, tmp_path / "stopped", RunRecorder(stop_after=6))
    run(recipe, tmp_path / "stopped", resume=True)

    file = tmp_path / "whole" / "seed-0" / "adafocal.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))

    assert [(row["epoch"], row["bin"]) for row in rows] == [
        (str(epoch), str(number)) for epoch in (1, 2) for number in range(4)
    ]
    checkpoint = torch.load(tmp_path / "whole" / "seed-0" / "checkpoint.pt")
    gammas = [float(row["gamma"]) for row in rows[4:]]
    assert gammas == checkpoint["loss"]["gammas"].tolist()
    assert file.read_bytes() == (tmp_path / "stopped" / "seed-0" / "adafocal.csv").read_bytes()
    for row in rows:
        gap = float(row["mean_confidence"]) - float(row["accuracy"])
        assert float(row["gap"]) == pytest.approx(gap)
