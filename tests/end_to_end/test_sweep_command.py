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
from safetensors.torch import load_file

from difficulty_service.base.errors import TrainingError
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table
from trainer.commands.side_by_side import devices_of

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


@pytest.mark.slow
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


@pytest.mark.long
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


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_diverges_does_not_stop_the_others(
    jobs: int, difficulty: Command, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    over = ("--over", "optimiser.learning_rate=1e38,0.1", "--set", "regulariser.alpha=0.1")

    done = difficulty(
        "sweep", folder / "probe.toml", *over, "--scores", folder / "scores.parquet",
        "--out", out, "--device", "cpu", "--resamples", 0, "--jobs", jobs,
    )  # fmt: skip

    assert done.returncode == 1
    if jobs == 1:  # processes that tests fork write elsewhere
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


@pytest.mark.long
def test_seeds_that_are_trained_at_once_become_what_they_are_one_by_one(
    difficulty: Command, folder: Path, tmp_path: Path
) -> None:
    one, both = tmp_path / "one", tmp_path / "both"
    seeds = ("--set", "training.seeds=[0,1]")
    difficulty(*words_of(folder, one, *seeds))

    done = difficulty(*words_of(folder, both, *seeds, "--jobs", 2))

    assert done.returncode == 0, done.stderr
    for run in ("regulariser.alpha=0", "regulariser.alpha=0.3"):
        for seed in ("seed-0", "seed-1"):
            ours, theirs = (
                load_file(each / run / seed / "model.safetensors") for each in (one, both)
            )
            torch.testing.assert_close(ours, theirs)
    assert (both / "comparison.md").exists()


@pytest.mark.long
def test_a_signal_saves_all_seeds_that_are_trained_at_once(
    fork_command: ForkCommand, folder: Path, tmp_path: Path
) -> None:
    out, errors = tmp_path / "run", tmp_path / "errors"
    settings = ("--set", "training.seeds=[0,1,2]", "--set", "training.epochs=100000")
    words = ("train", folder / "probe.toml", "--out", out, "--device", "cpu", *settings)
    words = (*words, "--scores", folder / "scores.parquet", "--jobs", 2)
    process = fork_command(*words, output=tmp_path / "output", errors=errors, forks=False)
    checkpoints = [out / f"seed-{seed}" / "checkpoint.pt" for seed in (0, 1)]
    deadline = time.monotonic() + 120
    while not all(each.exists() for each in checkpoints) and time.monotonic() < deadline:
        time.sleep(0.05)

    process.terminate()
    process.join(60)

    assert process.exitcode == 128 + signal.SIGTERM
    assert "seed 1: epoch 1/100000: loss " in (tmp_path / "output").read_text()
    assert "seed 0: stopped and saved" in errors.read_text()
    assert "seed 1: stopped and saved" in errors.read_text()
    assert not (out / "seed-2").exists()


@pytest.mark.parametrize(
    ("more", "environment", "said"),
    [
        (("--seed", 0, "--jobs", 2), {}, "--jobs 2 has no effect on one seed"),
        (("--jobs", 2), {"WORLD_SIZE": "2"}, "--jobs trains several seeds"),
        (("--jobs", 0), {}, "--jobs"),
        (("--engine", "ray"), {"WORLD_SIZE": "2"}, "--engine ray trains several seeds"),
        (("--ray-address", "127.0.0.1:9"), {}, "--ray-address needs --engine ray"),
    ],
)
def test_several_seeds_at_once_are_refused_where_they_mean_nothing(
    difficulty: Command,
    folder: Path,
    more: tuple[object, ...],
    environment: dict[str, str],
    said: str,
) -> None:
    words = ("train", folder / "probe.toml", "--scores", folder / "scores.parquet")
    out = folder / "refused"

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        done = difficulty(*words, "--out", out, "--device", "cpu", *more)

    assert done.returncode == 2
    assert said in done.stderr
    assert not out.exists()


def test_each_process_has_a_gpu_of_its_own_where_there_are_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert devices_of(3, "auto") == ["cuda:0", "cuda:1", "cuda:0"]
    assert devices_of(2, "cpu") == ["cpu", "cpu"]


def test_seeds_do_not_share_fewer_gpus_than_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,7")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    with pytest.raises(TrainingError, match=r"names 3 GPUs \(0, 1, 7\), and CUDA finds 2"):
        devices_of(3, "auto")
