"""Runs are compared by mean and standard deviation over their seeds, and written to files."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from difficulty_service.base.errors import TrainingError
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import evaluate_predictions, write_metrics
from trainer.reports.columns import COLUMNS, MAIN_COLUMNS
from trainer.reports.comparison import compare_runs, summarise
from trainer.reports.comparison_files import write_comparison
from trainer.reports.comparison_table import markdown_table
from trainer.run_folder import write_json, write_run

IDS = ("a", "b", "c")
TARGETS = (0, 1, 1)
OBJECTIVE = {"loss": {"name": "cross_entropy", "constants": {}}, "alpha": 0.0, "weights": "none"}
NAMES = ("rejection", "reliability", "risk-coverage", "roc")
CERTAIN = {"accuracy": 0.9, "ece": 0.02}


def make_seed(
    run: Path,
    seed: int,
    measures: dict[str, Any] | None,
    name: str = "cross-entropy",
    targets: Sequence[int] = TARGETS,
    file: str = "test.npz",
) -> None:
    """One seed's files; without metrics it is not finished."""
    folder = run / f"seed-{seed}"
    folder.mkdir(parents=True)
    write_run(folder, {"recipe": {"name": name}, "seed": seed})
    if measures is None:
        return
    write_json(folder / "objective.json", OBJECTIVE)
    write_metrics(folder / "metrics.json", {"raw": measures})
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]])
    write_predictions(folder / file, Predictions(IDS, logits, torch.tensor(targets)))


def rows_of(table: str) -> list[list[str]]:
    """Cells of the lines of the tables of metrics below their headers."""
    metrics = table.partition("### As trained")[2]
    lines = [line for line in metrics.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in rows if row[0] not in {"run", "---"}]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_mean_and_deviation_over_seeds_are_those_of_numpy(tmp_path: Path) -> None:
    accuracies = [0.91, 0.95, 0.92]
    for seed, accuracy in enumerate(accuracies):
        make_seed(tmp_path / "run", seed, {"accuracy": accuracy})

    summary = summarise(compare_runs([tmp_path / "run"]).runs[0], "raw", "accuracy")

    assert summary is not None
    assert summary.mean == pytest.approx(np.mean(accuracies))
    assert summary.std == pytest.approx(np.std(accuracies, ddof=1))
    assert summary.num_seeds == 3


def test_a_table_shows_percent_with_deviation_and_without_intervals_marks_nothing(
    tmp_path: Path,
) -> None:
    for seed, accuracy, ece in ((0, 0.90, 0.020), (1, 0.92, 0.024)):
        make_seed(tmp_path / "one", seed, {"accuracy": accuracy, "ece": ece}, "one")
    make_seed(tmp_path / "two", 0, {"accuracy": 0.95, "ece": 0.03}, "two")

    table = markdown_table(
        compare_runs([tmp_path / "one", tmp_path / "two"]), metrics=("accuracy", "ece")
    )

    assert "| run | seeds | accuracy (%) ↑ | ECE (%) ↓ |" in table
    assert rows_of(table) == [
        ["one", "2", "91.00 (90.00 and 92.00)", "2.20 (2.00 and 2.40)"],
        ["two", "1", "95.00", "3.00"],
    ]


def test_a_table_wider_than_the_terminal_has_its_runs_side_by_side(tmp_path: Path) -> None:
    names = ["first", "second", "third"]
    for number, name in enumerate(names):
        make_seed(tmp_path / name, 0, {"accuracy": 0.9, "ece": 0.02 + number / 100}, name)
    comparison = compare_runs([tmp_path / name for name in names])

    wide = markdown_table(comparison, ("accuracy", "ece"), width=200)
    narrow = markdown_table(comparison, ("accuracy", "ece"), width=30)

    assert wide == markdown_table(comparison, ("accuracy", "ece"))
    tables = narrow.partition("### As trained\n\n")[2].strip().split("\n\n")
    assert [table.splitlines()[0] for table in tables] == [f"| run | {name} |" for name in names]
    assert rows_of(narrow) == [
        row
        for number in range(3)
        for row in (
            ["seeds", "1"],
            ["accuracy (%) ↑", "90.00"],
            ["ECE (%) ↓", f"{2 + number}.00"],
        )
    ]


def test_a_value_that_a_seed_lacks_is_left_out_and_one_that_all_lack_is_a_dash(
    tmp_path: Path,
) -> None:
    make_seed(tmp_path / "run", 0, {"accuracy": 0.5, "ece": None, "nll": None})
    make_seed(tmp_path / "run", 1, {"accuracy": 0.7, "ece": 0.1, "nll": None})

    comparison = compare_runs([tmp_path / "run"])

    table = markdown_table(comparison, metrics=("accuracy", "ece", "nll"))
    assert rows_of(table)[0][2:] == ["60.00 (50.00 and 70.00)", "10.00", "\N{EN DASH}"]
    assert summarise(comparison.runs[0], "raw", "nll") is None


def test_seeds_that_are_not_finished_are_counted_but_not_averaged(tmp_path: Path) -> None:
    make_seed(tmp_path / "run", 0, CERTAIN)
    make_seed(tmp_path / "run", 1, None)

    table = markdown_table(compare_runs([tmp_path / "run"]), metrics=("accuracy",))

    assert rows_of(table) == [["cross-entropy", "1 of 2", "90.00"]]


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("x/one", "y/one", "two", "three")]
    for folder in folders[:3]:
        make_seed(folder, 0, CERTAIN, "focal")
    make_seed(folders[3], 0, CERTAIN, "brier")

    names = [run.name for run in compare_runs(folders).runs]

    assert names == [f"focal ({folders[0]})", f"focal ({folders[1]})", "focal (two)", "brier"]


def test_scaled_stages_have_tables_of_their_own_with_the_temperature(tmp_path: Path) -> None:
    make_seed(tmp_path / "run", 0, CERTAIN)
    logits, targets = torch.tensor([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0]]), torch.tensor(TARGETS)
    record = evaluate_predictions(logits, targets, validation=(logits, targets))
    write_metrics(tmp_path / "run" / "seed-0" / "metrics.json", record)

    table = markdown_table(compare_runs([tmp_path / "run"]))

    headings = [line for line in table.splitlines() if line.startswith("#")]
    assert headings == [
        "### What the runs minimise",
        "### As trained",
        "### After temperature scaling by NLL",
        "### After temperature scaling by ECE",
        "### After temperature scaling by adaptive ECE",
    ]
    # Two in three are right, so the best temperature makes the confidence 2/3.
    assert rows_of(table)[1][-1] == f"{9 / np.log(2):.2f}"


def test_every_metric_of_a_record_can_be_shown() -> None:
    logits = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))

    record = evaluate_predictions(logits, torch.arange(50) % 8)["raw"]

    assert set(record) == set(COLUMNS)
    assert set(MAIN_COLUMNS) < set(COLUMNS)


@pytest.mark.slow
def test_a_comparison_is_written_for_people_for_programs_and_as_pictures(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_seed(tmp_path / "one", seed, {"accuracy": 0.9 + seed / 50, "ece": None}, "a|b")
    comparison = compare_runs([tmp_path / "one"])
    out = tmp_path / "tables" / "v1.2.md"

    write_comparison(comparison, out)

    names = [
        *(f"v1.2-{name}.{suffix}" for name in NAMES for suffix in ("png", "svg")),
        "v1.2-seeds.csv",
    ]
    assert sorted(path.name for path in out.parent.iterdir()) == [
        *names,
        "v1.2.csv",
        "v1.2.html",
        "v1.2.json",
        "v1.2.md",
    ]
    assert r"| a\|b | 2 |" in out.read_text()
    (row,) = read_csv(out.parent / "v1.2.csv")
    assert list(row) == ["run", "stage", "metric", "mean", "std", "n", "low", "high"]
    assert float(row["mean"]) == pytest.approx(0.91)
    assert float(row["std"]) == pytest.approx(np.std([0.90, 0.92], ddof=1))
    assert (row["n"], row["low"], row["high"]) == ("2", "", "")
    seeds = read_csv(out.parent / "v1.2-seeds.csv")
    assert [(row["seed"], row["metric"], row["value"]) for row in seeds] == [
        ("0", "accuracy", "0.9"),
        ("0", "ece", ""),
        ("1", "accuracy", "0.92"),
        ("1", "ece", ""),
    ]
    written = json.loads((out.parent / "v1.2.json").read_text())
    assert written["seeds"][1]["value"] is None
    assert written["objectives"]["a|b"]["1"]["loss"]["name"] == "cross_entropy"
    assert all((out.parent / name).stat().st_size > 0 for name in names)


@pytest.mark.slow
def test_a_name_without_ending_becomes_a_markdown_file(tmp_path: Path) -> None:
    make_seed(tmp_path / "run", 0, CERTAIN)

    write_comparison(compare_runs([tmp_path / "run"]), tmp_path / "out" / "table")

    assert (tmp_path / "out" / "table.md").is_file()


def test_a_run_without_a_finished_seed_is_named(tmp_path: Path) -> None:
    make_seed(tmp_path / "run", 0, None)

    with pytest.raises(TrainingError, match=r"none of the 1 seeds in .*run is finished"):
        compare_runs([tmp_path / "run"])


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"nothing"):
        compare_runs([tmp_path / "nothing"])


def test_runs_with_different_test_labels_are_not_compared(tmp_path: Path) -> None:
    make_seed(tmp_path / "one", 0, CERTAIN)
    make_seed(tmp_path / "two", 0, CERTAIN, targets=(0, 1, 0))

    with pytest.raises(TrainingError, match=r"two.*other samples or labels.*2 agree"):
        compare_runs([tmp_path / "one", tmp_path / "two"])


def test_seeds_evaluated_on_their_own_validation_samples_are_compared_seed_by_seed(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        make_seed(tmp_path / name, 0, CERTAIN, name, (0, 1, 1), "validation.npz")
        make_seed(tmp_path / name, 1, CERTAIN, name, (1, 1, 0), "validation.npz")

    comparison = compare_runs([tmp_path / "one", tmp_path / "two"])

    assert [run.name for run in comparison.runs] == ["one", "two"]


def test_runs_evaluated_on_test_and_on_validation_samples_are_not_compared(tmp_path: Path) -> None:
    make_seed(tmp_path / "one", 0, CERTAIN)
    make_seed(tmp_path / "two", 0, CERTAIN, file="validation.npz")

    with pytest.raises(TrainingError, match=r"test\.npz, validation of seed 0"):
        compare_runs([tmp_path / "one", tmp_path / "two"])


@pytest.mark.parametrize("copies", [0, 2])
def test_a_comparison_takes_each_run_once(tmp_path: Path, copies: int) -> None:
    make_seed(tmp_path / "run", 0, CERTAIN)

    with pytest.raises(TrainingError, match=f"{copies} runs to compare"):
        compare_runs([tmp_path / "run"] * copies)
