"""`difficulty train` that is killed or stopped, and resumed."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from trainer.run_folder import METRICS, read_json

Command = Callable[..., subprocess.CompletedProcess[str]]
ForkCommand = Callable[..., ForkServerProcess]

EPOCHS = 4
TIMED = {"seconds", "samples_per_second"}

RECIPE = """
[data]
train = "{photos}"
image_size = 16
augmentation = "flip_crop"
validation = 0.2

[model]
name = "small_resnet"
widths = [4, 8]
blocks = [1, 1]

[loss]
name = "correctness_ranking"

[optimiser]
learning_rate = 0.01

[training]
epochs = {epochs}
batch_size = 4
ema_decay = 0.9
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """Batch normalisation, augmentation, a loss with memory, and a moving average."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE.format(photos=photos, epochs=EPOCHS))
    return path


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, recipe: Path, difficulty_process: Command
) -> Path:
    """The folder of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    done = difficulty_process("train", recipe, "--out", folder, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert f"epoch {EPOCHS}/{EPOCHS}: loss" in done.stdout
    return folder / "seed-0"


@dataclass(frozen=True)
class Run:
    """A command that trains.

    Attributes:
        process: Its process.
        errors: File of its standard error.
    """

    process: ForkServerProcess
    errors: Path


def start_run(fork_command: ForkCommand, words: Sequence[object], folder: Path) -> Run:
    """The command, well into its second epoch."""
    output, errors = folder / "output", folder / "errors"
    process = fork_command(*words, output=output, errors=errors)
    while not output.exists() or "epoch 1/" not in output.read_text():
        assert process.is_alive(), errors.read_text()
        time.sleep(0.001)
    wait_for_a_checkpoint(folder / "seed-0")
    return Run(process, errors)


@pytest.mark.slow
def test_a_run_that_is_killed_in_an_epoch_and_resumed_ends_the_same(
    fork_command: ForkCommand,
    difficulty_process: Command,
    recipe: Path,
    uninterrupted: Path,
    tmp_path: Path,
) -> None:
    words = ("train", recipe, "--out", tmp_path, "--device", "cpu")

    run = start_run(fork_command, words, tmp_path)
    run.process.kill()
    run.process.join()
    done = difficulty_process(*words, "--resume")

    assert run.process.exitcode == -signal.SIGKILL
    assert done.returncode == 0, done.stderr
    assert "resuming after epoch" in done.stdout
    accuracy = read_json(tmp_path / "seed-0" / METRICS)["raw"]["accuracy"]
    result, models = done.stdout.splitlines()[-2:]
    assert result.startswith(f"validation samples: accuracy (%) {100 * accuracy:.2f}, NLL ")
    assert models == f"1 model in {tmp_path}; next: difficulty evaluate {tmp_path}"
    assert_same_run(tmp_path / "seed-0", uninterrupted)
    again = difficulty_process(*words, "--resume")
    assert f"it has finished its {EPOCHS} epochs already" in again.stdout
    assert "resuming" not in again.stdout
    assert_same_run(tmp_path / "seed-0", uninterrupted)


@pytest.mark.slow
def test_a_run_that_receives_sigterm_saves_before_it_stops(
    fork_command: ForkCommand,
    difficulty_process: Command,
    recipe: Path,
    uninterrupted: Path,
    tmp_path: Path,
) -> None:
    words = ("train", recipe, "--out", tmp_path, "--device", "cpu")

    run = start_run(fork_command, words, tmp_path)
    run.process.terminate()
    run.process.join()
    stopped_at = torch.load(tmp_path / "seed-0" / "checkpoint.pt")["progress"]
    done = difficulty_process(*words, "--resume")

    assert run.process.exitcode == 143
    assert "stopped and saved; resume with the same command and --resume" in run.errors.read_text()
    assert 1 <= stopped_at["epoch"] < EPOCHS
    assert stopped_at["step"] > 0
    assert done.returncode == 0, done.stderr
    assert f"after epoch {stopped_at['epoch']}, step {stopped_at['step']}" in done.stdout
    assert_same_run(tmp_path / "seed-0", uninterrupted)


def wait_for_a_checkpoint(folder: Path) -> None:
    """Waits until the first epoch is saved and the second has begun."""
    while not (folder / "checkpoint.pt").exists():
        time.sleep(0.001)
    time.sleep(0.1)


def read_history(folder: Path) -> list[dict[str, Any]]:
    records = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    return [{key: record[key] for key in record.keys() - TIMED} for record in records]


def parameters_of(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same_run(one: Path, other: Path) -> None:
    """Compares two runs bit for bit, except for their timings."""
    parameters, others = parameters_of(one), parameters_of(other)
    assert parameters.keys() == others.keys()
    for name, value in parameters.items():
        assert torch.equal(value, others[name]), name
    assert read_history(one) == read_history(other)
    assert (one / "metrics.json").read_bytes() == (other / "metrics.json").read_bytes()
