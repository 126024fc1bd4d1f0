"""Two processes train as one does, but for rounding."""

import socket
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trainer.config import Recipe
from trainer.recipes.file import recipe_as_dict

MakeRecipe = Callable[..., Recipe]
Run = Callable[..., bool]

ONE_OF_TWO = """
import os

os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
from pathlib import Path

from trainer.recipes.file import recipe_from_dict
from trainer.runs.train import RunCallbacks, RunRequest, run_seed

callbacks = RunCallbacks(lambda *_: None, lambda _: None, lambda _: None, lambda: False)
run_seed(RunRequest(recipe_from_dict(recipe, "the recipe"), 0, Path(folder), "cpu"), callbacks)
"""


@pytest.mark.slow
def test_two_processes_train_as_one_does(
    probe_recipe: MakeRecipe,
    locations: dict[str, str],
    forkserver: ForkServerContext,
    run: Run,
    tmp_path: Path,
) -> None:
    scores = locations["SCORES"]
    recipe = probe_recipe(
        loss={"name": "adafocal"},
        regulariser={"alpha": 0.3, "weights": "scores", "scores": scores},
        sampling={"order": "easy_first", "scores": scores, "start": 0.4},
        optimiser={"gradient_clip": 0.5},
        training={"batch_size": 15, "gradient_accumulation": 2},
    )
    run(recipe, tmp_path / "one")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    values: dict[str, Any] = {"recipe": recipe_as_dict(recipe), "port": port}
    values["folder"] = str(tmp_path / "two")

    processes = [
        forkserver.Process(target=exec, args=(ONE_OF_TWO, values | {"rank": rank}))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
        process.join()

    assert [process.exitcode for process in processes] == [0, 0]
    one, two = (
        load_file(tmp_path / name / "seed-0" / "model.safetensors") for name in ("one", "two")
    )
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
