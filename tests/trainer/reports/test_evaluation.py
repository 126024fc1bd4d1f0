"""Evaluation of every seed of a run: the files that it writes and the tables that it prints."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import ConfigError, TrainingError
from difficulty_service.images.corruptions import SEVERITIES
from trainer.config import Recipe
from trainer.evaluation.prediction_file import read_distances, read_predictions
from trainer.evaluation.record import STAGES
from trainer.metrics.bootstrap import Resampling
from trainer.reports.columns import COLUMNS, NO_VALUE
from trainer.reports.evaluation import EvaluationRequest, evaluate_seeds
from trainer.runs.corruptions import CorruptionChoice
from trainer.runs.evaluate import DatasetChoice, OodChoice
from trainer.runs.train import RunCallbacks, RunRequest, run_seed

MakeRecipe = Callable[..., Recipe]
WriteFeatures = Callable[..., str]

SEEDS = (0, 1)
FEW = Resampling(num_resamples=40)
KINDS = ("gaussian_noise", "fog", "contrast")


def train(recipe: Recipe, folder: Path, seed: int, *, stop: bool = False) -> None:
    callbacks = RunCallbacks(should_stop=lambda: stop)
    run_seed(RunRequest(recipe, seed, folder, "cpu"), callbacks)


@pytest.fixture(scope="module")
def finished(
    probe_recipe: MakeRecipe, test_features: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A probe with two finished seeds."""
    folder = tmp_path_factory.mktemp("runs") / "probe"
    recipe = probe_recipe(data={"test": test_features}, training={"epochs": 1})
    for seed in SEEDS:
        train(recipe, folder, seed)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of that run that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def evaluate(run: Path, request: EvaluationRequest | None = None) -> list[str]:
    """The tables of a run, with few resamples where it is not asked for another number."""
    request = request or EvaluationRequest()
    if request.resampling == Resampling():
        request = replace(request, resampling=FEW)
    return evaluate_seeds(run, request, "cpu", lambda: None)


def read_strict(path: Path) -> dict[str, Any]:
    """Reads JSON and refuses NaN and infinities, which Python would accept."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{path} holds {word}")

    record: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    del record["checksum"], record["with_checksum"]
    return record


def cells_of(table: str) -> dict[str, list[str]]:
    """Cells of each row by its first one, which no two rows share."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


def spread(values: list[float], scale: float, decimals: int) -> str:
    mean, std = np.mean(values), np.std(values, ddof=1)
    return f"{scale * mean:.{decimals}f} ± {scale * std:.{decimals}f}"


@pytest.mark.slow
def test_a_table_shows_mean_and_deviation_over_the_seeds_at_every_stage(run: Path) -> None:
    (table,) = evaluate(run)

    records = [load_checked((run / f"seed-{seed}" / "metrics.json").read_text()) for seed in SEEDS]
    cells = cells_of(table)
    assert cells["metric"] == [
        "as trained",
        "temperature by NLL",
        "temperature by ECE",
        "temperature by adaptive ECE",
    ]
    assert cells["accuracy (%) ↑"] == [
        spread([record[stage]["accuracy"] for record in records], 100, 2) for stage in STAGES
    ]
    assert cells["NLL ↓"] == [
        spread([record[stage]["nll"] for record in records], 1, 4) for stage in STAGES
    ]
    temperatures = [record["temperature_nll"]["temperature"] for record in records]
    assert cells["temperature"][:2] == [NO_VALUE, spread(temperatures, 1, 2)]
    assert "AURC, MSP (x 1000) ↓" in cells
    # Three classes have no five likeliest ones.
    assert COLUMNS["top_5_accuracy"].header not in cells


@pytest.mark.slow
def test_all_metrics_are_written_into_the_folder_of_each_seed(run: Path) -> None:
    evaluate(run)

    for seed in SEEDS:
        folder = run / f"seed-{seed}"
        written = read_strict(folder / "evaluation.json")["the recipe's test data"]
        before = read_strict(folder / "metrics.json")
        assert written["raw"]["nll"] == before["raw"]["nll"]
        assert written["raw"]["nll_low"] < written["raw"]["nll"] < written["raw"]["nll_high"]


@pytest.mark.slow
def test_another_dataset_is_named_and_its_predictions_are_saved(
    run: Path, write_features: WriteFeatures, tmp_path: Path
) -> None:
    location = write_features(tmp_path / "others", num_samples=12, seed=7)

    (table,) = evaluate(run, EvaluationRequest(DatasetChoice(location)))

    accuracies = []
    for seed in SEEDS:
        folder = run / f"seed-{seed}"
        written = read_strict(folder / "evaluation.json")[location]
        predictions = read_predictions(folder / "evaluation.npz")
        assert len(predictions.targets) == 12
        accuracies.append(
            (predictions.logits.argmax(1) == predictions.targets).double().mean().item()
        )
        assert written["raw"]["accuracy"] == pytest.approx(accuracies[-1])
        assert len(read_predictions(folder / "test.npz").targets) == 31
    assert cells_of(table)["accuracy (%) ↑"][0] == spread(accuracies, 100, 2)


@pytest.mark.slow
def test_a_cell_ends_in_the_ends_of_its_interval_averaged_over_the_seeds(run: Path) -> None:
    resampling = Resampling(num_resamples=50, level=0.5)

    (table,) = evaluate(run, EvaluationRequest(resampling=resampling, show_intervals=True))

    records = [
        read_strict(run / f"seed-{seed}" / "evaluation.json")["the recipe's test data"]
        for seed in SEEDS
    ]
    ends = [
        np.mean([record["raw"][f"adaptive_ece_{end}"] for record in records])
        for end in ("low", "high")
    ]
    assert records[0]["intervals"] == {"level": 0.5, "resamples": 50}
    cell = cells_of(table)["adaptive ECE (%) ↓"][0]
    assert cell.endswith(f" [{100 * ends[0]:.2f}, {100 * ends[1]:.2f}]")
    assert "[" not in "".join(cells_of(table)["temperature"])


@pytest.mark.slow
def test_ood_detection_has_intervals_too(run: Path, test_features: str) -> None:
    _, table = evaluate(
        run, EvaluationRequest(ood=(OodChoice(test_features),), show_intervals=True)
    )

    records = [read_strict(run / f"seed-{seed}" / "ood.json") for seed in SEEDS]
    scaled = [record[test_features]["temperature_nll"]["msp"] for record in records]
    ends = [100 * np.mean([values[f"auroc_{end}"] for values in scaled]) for end in ("low", "high")]
    row = next(line for line in table.splitlines() if "| msp | temperature by NLL |" in line)
    assert f"50.00 ± 0.00 [{ends[0]:.2f}, {ends[1]:.2f}] |" in row


@pytest.mark.slow
def test_every_metric_of_the_table_has_an_interval(run: Path) -> None:
    (table,) = evaluate(run, EvaluationRequest(show_intervals=True))

    rows = cells_of(table)
    without = {name for name, cells in rows.items() if not cells[0].endswith("]")}
    assert without == {"metric", "---", "temperature", COLUMNS["s99_accuracy"].header} & set(rows)


@pytest.mark.slow
def test_roc_curves_are_written_for_each_seed_and_drawn_for_the_run(
    run: Path, write_features: WriteFeatures, tmp_path: Path
) -> None:
    other = write_features(tmp_path / "others", num_samples=40, seed=8)

    evaluate(run, EvaluationRequest(ood=(OodChoice(other),)))

    for seed in SEEDS:
        points = pq.read_table(run / f"seed-{seed}" / "roc.parquet")
        assert set(points["detection"].to_pylist()) == {"misclassification", other}
        assert set(points["stage"].to_pylist()) == set(STAGES)
    for suffix in ("png", "svg"):
        assert (run / f"roc.{suffix}").stat().st_size > 1000


@pytest.mark.slow
def test_each_ood_dataset_has_a_row_for_each_score(
    run: Path, write_features: WriteFeatures, test_features: str, tmp_path: Path
) -> None:
    other = write_features(tmp_path / "a|b", num_samples=40, seed=8)

    _, table = evaluate(run, EvaluationRequest(ood=(OodChoice(other), OodChoice(test_features))))

    records = [read_strict(run / f"seed-{seed}" / "ood.json") for seed in SEEDS]
    assert all(set(record) == {other, test_features} for record in records)
    lines = table.splitlines()
    # Four scores as trained and three at every temperature: it does not reorder the largest logits.
    assert len(lines) == 2 + 2 * (4 + 3 * 3)
    aurocs = [record[other]["msp"]["auroc"] for record in records]
    name = other.replace("|", r"\|")
    assert lines[2].startswith(f"| {name} | msp | as trained | {spread(aurocs, 100, 2)} | ")
    scaled = [record[other]["temperature_ece"]["entropy"]["auroc"] for record in records]
    start = f"| {name} | entropy | temperature by ECE | {spread(scaled, 100, 2)} | "
    assert any(line.startswith(start) for line in lines)
    own = next(line for line in lines if line.startswith(f"| {test_features} | msp"))
    assert " | 50.00 ± 0.00 | " in own


@pytest.mark.slow
def test_evaluations_are_added_and_the_same_name_replaces_its_own(
    run: Path, write_features: WriteFeatures, test_features: str, tmp_path: Path
) -> None:
    first = write_features(tmp_path / "first", num_samples=40, seed=8)
    second = write_features(tmp_path / "second", num_samples=20, seed=9)

    few = Resampling(num_resamples=2)
    shutil.rmtree(run / "seed-1")

    earlier = OodChoice(first, title="odd"), OodChoice(first)
    evaluate(run, EvaluationRequest(ood=earlier, resampling=few))
    before = read_strict(run / "seed-0" / "ood.json")
    later = OodChoice(second, title="odd"), OodChoice(second)
    evaluate(run, EvaluationRequest(DatasetChoice(test_features), later, resampling=few))
    after = read_strict(run / "seed-0" / "ood.json")

    assert list(after) == ["odd", first, second]
    assert after == {"odd": after[second], first: before["odd"], second: after[second]}
    assert after["odd"] != before["odd"]
    evaluations = read_strict(run / "seed-0" / "evaluation.json")
    assert list(evaluations) == ["the recipe's test data", test_features]
    points = pq.read_table(run / "seed-0" / "roc.parquet")
    assert set(points["detection"].to_pylist()) == {"misclassification", "odd", first, second}


def test_two_datasets_of_one_name_are_refused(run: Path, test_features: str) -> None:
    choice = OodChoice(test_features)

    with pytest.raises(TrainingError, match="name each once"):
        evaluate(run, EvaluationRequest(ood=(choice, choice)))


@pytest.mark.slow
def test_mahalanobis_distances_are_a_row_and_a_file(
    run: Path, write_features: WriteFeatures, tmp_path: Path
) -> None:
    other = write_features(tmp_path / "others", num_samples=40, seed=8)

    _, table = evaluate(run, EvaluationRequest(ood=(OodChoice(other),), mahalanobis=True))

    record = read_strict(run / "seed-1" / "ood.json")[other]
    assert "mahalanobis" not in record["temperature_nll"]
    records = [read_strict(run / f"seed-{seed}" / "ood.json") for seed in SEEDS]
    aurocs = [record[other]["mahalanobis"]["auroc"] for record in records]
    assert f"| {other} | mahalanobis | as trained | {spread(aurocs, 100, 2)} |" in table
    distances = read_distances(run / "seed-0" / "distances.parquet")
    assert list(distances) == list(read_predictions(run / "seed-0" / "test.npz").sample_ids)
    assert min(distances.values()) > 0


@pytest.mark.slow
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
        tmp_path,
        EvaluationRequest(corruptions=CorruptionChoice(KINDS)),
        "cpu",
        lambda: passes.append(None),
    )

    written = read_strict(tmp_path / "seed-0" / "corruptions.json")
    cells = cells_of(table)
    assert len(passes) == len(KINDS) * len(SEVERITIES)
    assert {name: len(by) for name, by in written.items()} == dict.fromkeys(KINDS, 5)
    assert len(cells) == 2 + 5 + len(KINDS)
    strongest = [written[name]["5"]["raw"]["accuracy"] for name in KINDS]
    assert cells["severity 5"][0] == f"{100 * np.mean(strongest):.2f}"
    scaled = [by["temperature_nll"]["adaptive_ece"] for by in written["gaussian_noise"].values()]
    assert cells["gaussian noise"][-1] == f"{100 * np.mean(scaled):.2f}"
    assert cells["corrupted by"][-1] == "adaptive ECE (%) ↓, scaled"


@pytest.mark.slow
def test_a_probe_has_no_images_to_corrupt(run: Path) -> None:
    with pytest.raises(ConfigError, match="corruptions need a recipe of images"):
        evaluate(run, EvaluationRequest(corruptions=CorruptionChoice()))


@pytest.mark.slow
def test_one_seed_has_no_deviation(run: Path) -> None:
    shutil.rmtree(run / "seed-1")

    (table,) = evaluate(run)

    assert "±" not in table


@pytest.mark.slow
def test_seeds_that_are_not_finished_are_left_out(run: Path) -> None:
    (run / "seed-1" / "metrics.json").unlink()

    (table,) = evaluate(run)

    assert "±" not in table
    assert not (run / "seed-1" / "evaluation.json").exists()


def test_a_run_without_a_finished_seed_is_refused_with_the_remedy(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    train(probe_recipe(), tmp_path, 0, stop=True)

    with pytest.raises(TrainingError, match=r"no seed of .* is finished; .* resume=True"):
        evaluate(tmp_path)


def test_a_folder_that_holds_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"holds no run.*difficulty train"):
        evaluate(tmp_path)


@pytest.mark.slow
def test_validation_samples_are_not_called_test_data(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    train(probe_recipe(), tmp_path, 0)

    (table,) = evaluate(tmp_path)

    written = read_strict(tmp_path / "seed-0" / "evaluation.json")
    assert set(written) == {"the validation samples held out"}
    assert cells_of(table)["metric"] == ["as trained"]


@pytest.mark.slow
def test_a_metric_without_a_value_is_a_dash_or_no_row(
    run: Path, write_features: WriteFeatures, tmp_path: Path
) -> None:
    location = write_features(tmp_path / "one", num_samples=1)

    evaluate(run)
    (table,) = evaluate(run, EvaluationRequest(DatasetChoice(location)))

    # Errors of a single sample cannot be told from successes.
    assert "AUROC, MSP (%) ↑" not in cells_of(table)
    written = read_strict(run / "seed-0" / "evaluation.json")[location]
    assert written["raw"]["misclassification_auroc_msp"] is None
    assert math.isfinite(written["raw"]["nll"])
    # Nor is there a curve; those of the evaluation before are of other data.
    assert pq.read_table(run / "seed-0" / "roc.parquet").num_rows == 0
    assert not list(run.glob("roc.*"))
