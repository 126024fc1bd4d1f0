"""`difficulty sweep`: runs for all combinations, resumed where they stopped, and compared."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import torch

from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

Command = Callable[..., subprocess.CompletedProcess[str]]
ForkCommand = Callable[..., ForkServerProcess]

RECIPE = """
[data]
kind = "features"
train = "{features}/train"
test = "{features}/test"
validation = 0.2

[model]
name = "probe"

[regulariser]
alpha = 0.3
weights = "scores"

[training]
epochs = 2
batch_size = 16
precision = "fp32"
"""

OVER = ("--over", "regulariser.alpha=0,0.3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_features: Callable[..., str]) -> Path:
    """Features, their scores and a recipe."""
    folder = tmp_path_factory.mktemp("sweep")
    write_features(folder / "train")
    write_features(folder / "test", num_samples=31, seed=1)
    (folder / "probe.toml").write_text(RECIPE.format(features=folder))
    ids = [f"train/{number:03d}.png" for number in range(90)]
    scores = torch.randn(90, generator=torch.Generator().manual_seed(0)).double().tolist()
    labels = [number % 3 for number in range(90)]
    table = score_table(labels, ("bird", "cat", "dog"), ids, rmd=scores)
    write_scores(folder / "scores.parquet", table, Provenance.of({"backbone": "builtin"}))
    return folder


def words_of(folder: Path, out: Path, *more: object) -> tuple[object, ...]:
    words = ("sweep", folder / "probe.toml", *OVER, "--scores", folder / "scores.parquet")
    return (*words, "--out", out, "--device", "cpu", "--resamples", 50, *more)


def test_a_sweep_trains_all_runs_and_compares_them(
    difficulty: Command, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"

    done = difficulty(*words_of(folder, out))

    assert done.returncode == 0, done.stderr
    plain, weighted = out / "regulariser.alpha=0", out / "regulariser.alpha=0.3"
    objectives = [
        json.loads((run / "seed-0" / "objective.json").read_text()) for run in (plain, weighted)
    ]
    assert [objective["weights"] for objective in objectives] == ["none", "scores"]
    table = (out / "comparison.md").read_text()
    assert "| probe, regulariser.alpha=0 | cross_entropy | none | \N{EN DASH} |" in table
    assert "0.3 x weight x entropy | by `rmd` of" in table
    assert table.strip() in done.stdout
    assert (out / "comparison-weights.png").stat().st_size > 0


def test_a_dry_run_lists_the_runs_and_trains_none(
    difficulty: Command, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"

    done = difficulty(*words_of(folder, out, "--dry-run"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"regulariser.alpha=0: 1 seed, in {out}/regulariser.alpha=0",
        f"regulariser.alpha=0.3: 1 seed, in {out}/regulariser.alpha=0.3",
    ]
    assert not out.exists()


def test_a_sweep_goes_on_where_it_stopped_and_keeps_what_is_finished(
    difficulty: Command, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    difficulty(*words_of(folder, out))
    first, second = (out / f"regulariser.alpha={alpha}" / "seed-0" for alpha in ("0", "0.3"))
    finished = (first / "metrics.json").stat().st_mtime_ns
    metrics = (second / "metrics.json").read_bytes()
    (second / "metrics.json").unlink()

    refused = difficulty(*words_of(folder, out))
    resumed = difficulty(*words_of(folder, out, "--resume"))

    assert refused.returncode == 1
    assert "--resume" in refused.stderr
    assert resumed.returncode == 0, resumed.stderr
    assert (first / "metrics.json").stat().st_mtime_ns == finished
    assert (second / "metrics.json").read_bytes() == metrics


def test_a_run_that_diverges_does_not_stop_the_others(
    difficulty: Command, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    over = ("--over", "optimiser.learning_rate=1e38,0.1", "--set", "regulariser.alpha=0.1")

    done = difficulty(
        "sweep", folder / "probe.toml", *over, "--scores", folder / "scores.parquet",
        "--out", out, "--device", "cpu", "--resamples", 0,
    )  # fmt: skip

    assert done.returncode == 1
    assert "error: optimiser.learning_rate=1e+38: " in done.stderr
    assert (out / "optimiser.learning_rate=0.1" / "seed-0" / "metrics.json").exists()
    assert "optimiser.learning_rate=0.1" in (out / "comparison.md").read_text()


def test_a_sweep_that_is_stopped_saves_and_says_how_to_go_on(
    fork_command: ForkCommand, folder: Path, tmp_path: Path
) -> None:
    out, errors = tmp_path / "sweep", tmp_path / "errors"
    words = words_of(folder, out, "--set", "training.epochs=100000")
    process = fork_command(*words, output=tmp_path / "output", errors=errors)
    checkpoint = out / "regulariser.alpha=0" / "seed-0" / "checkpoint.pt"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    process.terminate()
    process.join(60)

    assert process.exitcode == 128 + signal.SIGTERM
    assert "0 of 2 runs of the sweep are finished" in errors.read_text()
    assert "--resume" in errors.read_text()
    assert not (out / "regulariser.alpha=0.3").exists()
