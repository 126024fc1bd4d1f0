"""Seeds that train on a Ray cluster end as on one machine, also where a node loses its process."""

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from difficulty_service.base.errors import EngineError
from tests.cluster.conftest import TIMEOUT, SimulatedCluster
from trainer.commands.places import SeedToTrain
from trainer.commands.seed_actor import SeedActor, Surroundings
from trainer.recipes.file import read_recipe

pytestmark = pytest.mark.long

ForkCommand = Callable[..., ForkServerProcess]

RECIPE = """
[data]
kind = "features"
train = "features/train"
validation = 0.2

[model]
name = "probe"

[training]
epochs = {epochs}
batch_size = 16
seeds = [0, 1]
precision = "fp32"
"""
OVER = ("--over", "optimiser.learning_rate=0.1,0.01", "--device", "cpu", "--resamples", "0")
SWEPT = [f"optimiser.learning_rate={rate}/seed-{seed}" for rate in (0.1, 0.01) for seed in (0, 1)]


@pytest.fixture
def folder(
    tmp_path: Path, write_features: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with features and a recipe that names them from there."""
    write_features(tmp_path / "features" / "train")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path) -> dict[str, bytes]:
    return {run: (folder / run / "model.safetensors").read_bytes() for run in SWEPT}


def wait_for(path: Path, process: ForkServerProcess, output: Path) -> None:
    until = time.monotonic() + TIMEOUT
    while not path.exists():
        assert process.is_alive(), output.read_text()
        assert time.monotonic() < until, f"no {path}"
        time.sleep(0.02)


def test_a_sweep_on_a_cluster_has_the_parameters_of_one_machine_whatever_is_killed(
    cluster: SimulatedCluster, folder: Path, fork_command: ForkCommand
) -> None:
    (folder / "probe.toml").write_text(RECIPE.format(epochs=60))
    output = folder / "output.txt"
    alone = fork_command("sweep", "probe.toml", *OVER, "--out", "alone", output=output)
    on_ray = ("--engine", "ray", "--ray-address", cluster.address)

    started = fork_command(
        *("sweep", "probe.toml", *OVER, "--out", "ray", *on_ray), output=output, errors=output
    )
    wait_for(folder / "ray" / SWEPT[0] / "checkpoint.pt", started, output)
    actors = [pid for node in cluster.workers for pid in cluster.actors(node, "SeedActor")]
    os.kill(actors[0], signal.SIGKILL)
    for process in (started, alone):
        process.join(TIMEOUT)

    assert (started.exitcode, alone.exitcode) == (0, 0), output.read_text()
    said = output.read_text()
    assert len(actors) == 3, "one for each core, while the fourth seed waits"
    assert "its node was lost" in said
    assert written(folder / "ray") == written(folder / "alone")
    assert not list((folder / "ray").glob(".shared-*"))


def test_a_signal_saves_the_seeds_on_all_nodes(
    cluster: SimulatedCluster, folder: Path, fork_command: ForkCommand
) -> None:
    (folder / "probe.toml").write_text(RECIPE.format(epochs=100_000))
    output = folder / "output.txt"

    started = fork_command(
        *("train", "probe.toml", "--out", "run", "--device", "cpu"),
        *("--engine", "ray", "--ray-address", cluster.address),
        output=output,
        errors=output,
    )
    for seed in (0, 1):
        wait_for(folder / "run" / f"seed-{seed}" / "checkpoint.pt", started, output)
    os.kill(started.pid or 0, signal.SIGTERM)
    started.join(TIMEOUT)

    assert started.exitcode == 143, output.read_text()
    for seed in (0, 1):
        assert f"seed {seed}: stopped and saved; resume with the same command" in output.read_text()


def test_a_node_that_does_not_see_the_folder_is_named(folder: Path) -> None:
    recipe = read_recipe("probe_quick", [])
    seed = SeedToTrain("seed 0", recipe, 0, folder / "run", resume=False)
    elsewhere = Surroundings(folder, folder / "not-there" / "token")

    with pytest.raises(EngineError, match=r"does not share .*not-there.* with this machine"):
        SeedActor().start(seed, "cpu", elsewhere)


def test_a_cluster_without_a_gpu_says_so(
    cluster: SimulatedCluster, folder: Path, fork_command: ForkCommand
) -> None:
    (folder / "probe.toml").write_text(RECIPE.format(epochs=1))
    output = folder / "output.txt"

    process = fork_command(
        *("train", "probe.toml", "--out", "run", "--device", "cuda"),
        *("--engine", "ray", "--ray-address", cluster.address),
        output=output,
        errors=output,
    )
    process.join(TIMEOUT)

    assert process.exitcode == 1
    assert "no node of the cluster has a GPU for the device 'cuda'; use --device cpu" in " ".join(
        output.read_text().split()
    )
