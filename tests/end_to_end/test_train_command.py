"""`difficulty train`: seeds, errors, and runs in two processes at once."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from trainer.evaluation.prediction_file import read_predictions

Command = Callable[..., subprocess.CompletedProcess[str]]

TIMED = {"seconds", "samples_per_second"}

FEATURES_RECIPE = """
[data]
train = "{features}"
kind = "features"
validation = 0.2

[model]
name = "probe"

[optimiser]
learning_rate = 0.005

[training]
epochs = 3
batch_size = 15
"""

SEVERAL_COMMANDS = """
import atexit, json, sys
from torch import distributed
from difficulty_service.cli import create_app

# What is registered first is called last.
atexit.register(lambda: distributed.is_initialized() or print("left the other process"))
for words in json.loads(sys.argv[1]):
    create_app()(words)
"""

# What `accelerate launch` starts where there are GPUs; without any it starts one process.
LAUNCH = (sys.executable, "-m", "torch.distributed.run")
ON_CPUS = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}

WAITING_SECONDS = 240

# Two processes share batches of 15 as 8 and 7.
VARIATIONS = {
    "sum": ["training.reduction=sum"],
    "mean": ["training.ema_decay=0.8"],
    "memory": ["loss.name=correctness_ranking"],
}


def test_scores_for_a_recipe_that_does_not_weigh_by_them_are_refused(
    difficulty: Command, write_features: Callable[..., str], tmp_path: Path
) -> None:
    recipe = tmp_path / "probe.toml"
    recipe.write_text(FEATURES_RECIPE.format(features=write_features(tmp_path / "features")))

    done = difficulty(
        "train", recipe, "--out", tmp_path / "run", "--scores", tmp_path / "s.parquet"
    )

    assert done.returncode == 2
    assert 'has no effect with regulariser.weights = "constant"' in " ".join(done.stderr.split())
    assert not (tmp_path / "run").exists()


def test_the_final_epoch_is_printed_where_it_is_the_best(
    difficulty: Command, write_features: Callable[..., str], tmp_path: Path
) -> None:
    recipe = tmp_path / "probe.toml"
    recipe.write_text(FEATURES_RECIPE.format(features=write_features(tmp_path / "features")))

    done = difficulty(
        *("train", recipe, "--out", tmp_path / "run", "--device", "cpu"),
        *("--set", "training.final=best", "--set", "training.best_by=nll"),
    )

    epoch = json.loads((tmp_path / "run" / "seed-0" / "final.json").read_text())["epoch"]
    assert f"epoch {epoch} of 3 is final, the best by validation nll" in done.stdout


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        (("--seed", "7"), "training.seeds=[3, 5]"),
        (("--scores", "s.parquet"), "regulariser.scores=t.parquet"),
        (("--scores", "s.parquet"), "loss.scores=t.parquet"),
        (("--on-error", "stop"), "data.on_error=skip"),
    ],
)
def test_an_option_and_a_setting_of_the_same_key_exclude_each_other(
    difficulty: Command, option: tuple[str, str], setting: str
) -> None:
    done = difficulty("train", "probe_quick", *option, "--set", setting)

    key = setting.partition("=")[0]
    assert done.returncode == 2
    assert f"{option[0]} and --set {key} exclude each other" in " ".join(done.stderr.split())


def test_an_option_for_images_is_refused_for_features(difficulty: Command) -> None:
    done = difficulty("train", "probe_quick", "--on-error", "skip")

    assert done.returncode == 1
    message = " ".join(done.stderr.split())
    assert 'has no effect with data.kind = "features"; it applies to "images"; remove it' in message


def test_a_folder_in_use_and_a_learning_rate_that_is_too_high_are_errors_of_one_line(
    difficulty: Command, write_features: Callable[..., str], tmp_path: Path
) -> None:
    recipe = tmp_path / "probe.toml"
    recipe.write_text(FEATURES_RECIPE.format(features=write_features(tmp_path / "features")))
    wild = ("--set", "optimiser.learning_rate=1e9", "--set", "model.hidden=[8, 8]")

    done = difficulty("train", recipe, "--out", tmp_path / "run", "--device", "cpu")
    taken = difficulty("train", recipe, "--out", tmp_path / "run", "--device", "cpu")
    diverged = difficulty("train", recipe, "--out", tmp_path / "wild", "--device", "cpu", *wild)

    assert done.returncode == 0, done.stderr
    assert (taken.returncode, diverged.returncode) == (1, 1)
    assert "already holds a run; continue it with --resume, or use another --out" in taken.stderr
    assert "lower optimiser.learning_rate" in diverged.stderr
    assert [len(run.stderr.splitlines()) for run in (taken, diverged)] == [1, 1]


def test_one_seed_or_those_of_the_recipe_are_trained(
    difficulty: Command, write_features: Callable[..., str], tmp_path: Path
) -> None:
    recipe = tmp_path / "probe.toml"
    text = FEATURES_RECIPE.format(features=write_features(tmp_path / "features"))
    recipe.write_text(f"{text}seeds = [3, 5]\n")
    words = ("train", recipe, "--device", "cpu", "--out")

    all_seeds = difficulty(*words, tmp_path / "all")
    one_seed = difficulty(*words, tmp_path / "one", "--seed", 7)

    assert (all_seeds.returncode, one_seed.returncode) == (0, 0)
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["seed-3", "seed-5"]
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["seed-7"]


@pytest.mark.slow
def test_two_processes_train_the_same_model_as_one(
    difficulty: Command, write_features: Callable[..., str], tmp_path: Path
) -> None:
    recipe, script = tmp_path / "probe.toml", tmp_path / "commands.py"
    recipe.write_text(FEATURES_RECIPE.format(features=write_features(tmp_path / "features", 94)))
    script.write_text(SEVERAL_COMMANDS)

    def words(name: str, folder: str) -> list[str]:
        settings = [word for change in VARIATIONS[name] for word in ("--set", change)]
        return ["train", str(recipe), "--out", str(tmp_path / folder / name), *settings]

    commands = json.dumps([words(name, "two") for name in VARIATIONS])
    two = subprocess.run(  # noqa: S603 - our own script
        [*LAUNCH, "--nproc_per_node", "2", "--master_port", free_port(), str(script), commands],
        env=ON_CPUS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    for name in VARIATIONS:
        assert difficulty(*words(name, "one"), "--device", "cpu").returncode == 0

    assert two.returncode == 0, two.stderr
    assert two.stdout.count("2 processes") == len(VARIATIONS)
    assert two.stdout.count("epoch 3/3") == len(VARIATIONS), "only one process prints"
    assert two.stdout.count("left the other process") == 2, "or a thread may abort the end"
    for name in ("sum", "mean"):
        assert_nearly_same_run(
            tmp_path / "two" / name / "seed-0", tmp_path / "one" / name / "seed-0"
        )
    counts, others = (
        torch.load(tmp_path / folder / "memory" / "seed-0" / "checkpoint.pt")["loss"]["counts"]
        for folder in ("two", "one")
    )
    assert counts.shape == others.shape
    # Their ranking terms differ, so a prediction at the border may; but all samples are counted.
    assert (counts - others).abs().sum() <= 0.1 * others.sum()
    history = read_history(tmp_path / "two" / "memory" / "seed-0")
    right = sum(record["train_accuracy"] for record in history) * len(counts)
    assert counts.sum() == pytest.approx(right)


@pytest.mark.slow
def test_two_machines_train_the_same_model_as_one(
    difficulty: Command, write_features: Callable[..., str], tmp_path: Path
) -> None:
    recipe = tmp_path / "probe.toml"
    recipe.write_text(FEATURES_RECIPE.format(features=write_features(tmp_path / "features", 94)))
    port = free_port()

    outputs, codes = outputs_of(
        [
            *(*LAUNCH, "--nnodes", "2", "--node_rank", str(rank), "--nproc_per_node", "1"),
            *("--master_addr", "127.0.0.1", "--master_port", port),
            *("-m", "difficulty_service", "train", recipe, "--out", tmp_path / "two"),
        ]
        for rank in range(2)
    )
    assert difficulty("train", recipe, "--out", tmp_path / "one", "--device", "cpu").returncode == 0

    assert codes == [0, 0], outputs
    assert ["epoch 3/3" in text for text in outputs] == [True, False], "only one process prints"
    assert "2 processes" in outputs[0]
    assert_nearly_same_run(tmp_path / "two" / "seed-0", tmp_path / "one" / "seed-0")


def outputs_of(commands: Iterable[Sequence[object]]) -> tuple[list[str], list[int]]:
    """What commands print that run at once, and their exit codes.

    Where they wait for each other for minutes, all are aborted, and print where they were.
    """
    machines = [
        subprocess.Popen(  # noqa: S603 - our own command
            list(map(str, words)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ON_CPUS | {"PYTHONFAULTHANDLER": "1"},
        )
        for words in commands
    ]
    outputs = []
    for machine in machines:
        try:
            outputs.append(machine.communicate(timeout=WAITING_SECONDS)[0])
        except subprocess.TimeoutExpired:
            for each in machines:
                with suppress(psutil.NoSuchProcess):
                    launcher = psutil.Process(each.pid)
                    for process in [*launcher.children(recursive=True), launcher]:
                        process.send_signal(signal.SIGABRT)
            outputs.append(machine.communicate()[0])
    return outputs, [machine.returncode for machine in machines]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def read_history(folder: Path) -> list[dict[str, Any]]:
    records = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    return [{key: record[key] for key in record.keys() - TIMED} for record in records]


def parameters_of(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def assert_nearly_same_run(one: Path, other: Path) -> None:
    """Compares two runs up to rounding."""
    parameters, others = parameters_of(one), parameters_of(other)
    for name, value in parameters.items():
        torch.testing.assert_close(value, others[name], rtol=1e-5, atol=1e-6)
    for record, other_record in zip(read_history(one), read_history(other), strict=True):
        assert record == pytest.approx(other_record, rel=1e-4)
    predictions, others = (read_predictions(folder / "validation.npz") for folder in (one, other))
    assert predictions.sample_ids == others.sample_ids
    torch.testing.assert_close(predictions.logits, others.logits, rtol=1e-4, atol=1e-5)


def test_training_and_evaluating_a_network_of_ones_own_say_whose_code_runs(
    difficulty: Command,
    write_features: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = write_features(tmp_path / "features")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "network_of_mine.py").write_text(
        "from torch import nn\n\ndef net(num_classes, dim=6):\n"
        "    return nn.Linear(dim, num_classes)\n"
    )
    recipe = tmp_path / "recipe.toml"
    text = FEATURES_RECIPE.format(features=features)
    recipe.write_text(text.replace('"probe"', '"network_of_mine:net"'))

    trained = difficulty("train", recipe, "--out", tmp_path / "run")
    evaluated = difficulty("evaluate", tmp_path / "run", "--data", features)

    notice = f"runs code of {tmp_path / 'network_of_mine.py'}"
    assert (trained.returncode, evaluated.returncode) == (0, 0), trained.stderr + evaluated.stderr
    assert notice in trained.stderr
    assert notice in evaluated.stderr
