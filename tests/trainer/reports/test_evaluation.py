"""Every seed of a run is judged, its numbers are kept beside it, and tables show them all."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difficulty_service.errors import ConfigError, TrainingError
from trainer.config import Recipe
from trainer.evaluation.corruptions import CORRUPTIONS, SEVERITIES
from trainer.evaluation.prediction_file import read_predictions
from trainer.reports.columns import COLUMNS, NO_VALUE
from trainer.reports.evaluation import Wanted, evaluate_seeds
from trainer.runs.evaluate import DatasetChoice
from trainer.runs.train import Observer, RunRequest, run_seed

MakeRecipe = Callable[..., Recipe]
WriteFeatures = Callable[..., str]

SEEDS = (0, 1)


def train(recipe: Recipe, folder: Path, seed: int, *, stop: bool = False) -> None:
    observer = Observer(lambda *_: None, lambda _: None, lambda _: None, lambda: stop)
    run_seed(RunRequest(recipe, seed, folder, "cpu"), observer)


@pytest.fixture(scope="module")
def finished(
    probe_recipe: MakeRecipe, test_features: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A probe that two seeds were trained of."""
    folder = tmp_path_factory.mktemp("runs") / "probe"
    recipe = probe_recipe(data={"test": test_features}, training={"epochs": 1})
    for seed in SEEDS:
        train(recipe, folder, seed)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of that run, for a test to write to."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def evaluate(run: Path, wanted: Wanted | None = None) -> list[str]:
    return evaluate_seeds(run, wanted or Wanted(), "cpu", lambda: None)


def read_strict(path: Path) -> dict[str, Any]:
    """JSON without the NaN and infinities that Python would take."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{path} holds {word}")

    return json.loads(path.read_text(), parse_constant=refuse)


def cells_of(table: str) -> dict[str, list[str]]:
    """Cells of each row by its first one, which no two rows share."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def spread(values: list[float], scale: float, decimals: int) -> str:
    mean, std = np.mean(values), np.std(values, ddof=1)
    return f"{scale * mean:.{decimals}f} ± {scale * std:.{decimals}f}"


def test_a_table_shows_mean_and_deviation_over_the_seeds_at_every_stage(run: Path) -> None:
    (table,) = evaluate(run)

    records = [json.loads((run / f"seed-{seed}" / "metrics.json").read_text()) for seed in SEEDS]
    cells = cells_of(table)
    stages = ("raw", "temperature_nll", "temperature_ece")
    assert cells["metric"] == ["as trained", "temperature by NLL", "temperature by ECE"]
    assert cells["accuracy (%) ↑"] == [
        spread([record[stage]["accuracy"] for record in records], 100, 2) for stage in stages
    ]
    assert cells["NLL ↓"] == [
        spread([record[stage]["nll"] for record in records], 1, 4) for stage in stages
    ]
    temperatures = [record["temperature_nll"]["temperature"] for record in records]
    assert cells["temperature"][:2] == [NO_VALUE, spread(temperatures, 1, 2)]
    assert "AURC, MSP (x 1000) ↓" in cells
    # Three classes have no five likeliest ones.
    assert COLUMNS["top_5_accuracy"].header not in cells


def test_every_number_is_kept_beside_each_seed(run: Path) -> None:
    evaluate(run)

    for seed in SEEDS:
        folder = run / f"seed-{seed}"
        kept = read_strict(folder / "evaluation.json")
        before = read_strict(folder / "metrics.json")
        assert kept["data"] == "the recipe's test data"
        assert kept["raw"]["nll"] == before["raw"]["nll"]
        assert kept["raw"]["nll_low"] < kept["raw"]["nll"] < kept["raw"]["nll_high"]


def test_other_data_are_named_and_their_predictions_kept(
    run: Path, write_features: WriteFeatures, tmp_path: Path
) -> None:
    location = write_features(tmp_path / "others", num_samples=12, seed=7)

    (table,) = evaluate(run, Wanted(DatasetChoice(location)))

    accuracies = []
    for seed in SEEDS:
        folder = run / f"seed-{seed}"
        kept = read_strict(folder / "evaluation.json")
        said = read_predictions(folder / "evaluation.npz")
        assert kept["data"] == location
        assert len(said.targets) == 12
        accuracies.append((said.logits.argmax(1) == said.targets).double().mean().item())
        assert kept["raw"]["accuracy"] == pytest.approx(accuracies[-1])
        assert len(read_predictions(folder / "test.npz").targets) == 31
    assert cells_of(table)["accuracy (%) ↑"][0] == spread(accuracies, 100, 2)


def test_each_ood_dataset_has_a_row_for_each_score(
    run: Path, write_features: WriteFeatures, test_features: str, tmp_path: Path
) -> None:
    other = write_features(tmp_path / "a|b", num_samples=40, seed=8)

    _, table = evaluate(run, Wanted(ood=(other, test_features)))

    records = [read_strict(run / f"seed-{seed}" / "ood.json") for seed in SEEDS]
    assert all(set(record) == {other, test_features} for record in records)
    lines = table.splitlines()
    assert len(lines) == 2 + 2 * 3
    aurocs = [record[other]["msp"]["auroc"] for record in records]
    name = other.replace("|", r"\|")
    assert lines[2].startswith(f"| {name} | msp | {spread(aurocs, 100, 2)} | ")
    own = next(line for line in lines if line.startswith(f"| {test_features} | msp"))
    assert " | 50.00 ± 0.00 | " in own


def test_corruptions_have_a_row_for_each_severity_and_each_kind(
    image_recipe: MakeRecipe, images: str, tmp_path: Path
) -> None:
    recipe = image_recipe(
        data={"test": images},
        model={"widths": [4], "blocks": [1]},
        training={"epochs": 1},
    )
    train(recipe, tmp_path, 0)
    passes: list[None] = []

    _, table = evaluate_seeds(
        tmp_path, Wanted(corruptions=True), "cpu", lambda: passes.append(None)
    )

    kept = read_strict(tmp_path / "seed-0" / "corruptions.json")
    cells = cells_of(table)
    assert len(passes) == len(CORRUPTIONS) * len(SEVERITIES)
    assert [len(by) for by in kept.values()] == [5] * 10
    assert len(cells) == 2 + 5 + 10
    strongest = [kept[name]["5"]["raw"]["accuracy"] for name in CORRUPTIONS]
    assert cells["severity 5"][0] == f"{100 * np.mean(strongest):.2f}"
    scaled = [by["temperature_nll"]["adaptive_ece"] for by in kept["gaussian_noise"].values()]
    assert cells["gaussian noise"][-1] == f"{100 * np.mean(scaled):.2f}"
    assert cells["corrupted by"][-1] == "adaptive ECE (%) ↓, scaled"


def test_a_probe_has_no_images_to_corrupt(run: Path) -> None:
    with pytest.raises(ConfigError, match="--corruptions needs a recipe of images"):
        evaluate(run, Wanted(corruptions=True))


def test_one_seed_has_no_deviation(run: Path) -> None:
    shutil.rmtree(run / "seed-1")

    (table,) = evaluate(run)

    assert "±" not in table


def test_seeds_that_are_not_finished_are_left_out(run: Path) -> None:
    (run / "seed-1" / "metrics.json").unlink()

    (table,) = evaluate(run)

    assert "±" not in table
    assert not (run / "seed-1" / "evaluation.json").exists()


def test_a_run_without_a_finished_seed_says_how_to_go_on(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    train(probe_recipe(), tmp_path, 0, stop=True)

    with pytest.raises(TrainingError, match=r"no seed of .* is finished; .* --resume"):
        evaluate(tmp_path)


def test_a_folder_that_holds_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"holds no run.*difficulty train --out"):
        evaluate(tmp_path)


def test_validation_samples_are_not_called_test_data(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    train(probe_recipe(), tmp_path, 0)

    (table,) = evaluate(tmp_path)

    kept = read_strict(tmp_path / "seed-0" / "evaluation.json")
    assert kept["data"] == "the validation samples held out"
    assert cells_of(table)["metric"] == ["as trained"]


def test_a_metric_without_a_value_is_a_dash_or_no_row(
    run: Path, write_features: WriteFeatures, tmp_path: Path
) -> None:
    location = write_features(tmp_path / "one", num_samples=1)

    (table,) = evaluate(run, Wanted(DatasetChoice(location)))

    # Errors of a single sample cannot be told from successes.
    assert "AUROC, MSP (%) ↑" not in cells_of(table)
    kept = read_strict(run / "seed-0" / "evaluation.json")
    assert kept["raw"]["misclassification_auroc_msp"] is None
    assert math.isfinite(kept["raw"]["nll"])
