"""What is promised across processors, as docs/scaling.md says under "The same results"."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.processors import available, environment_of

pytestmark = pytest.mark.long

Results = dict[str, NDArray[np.float64]]

ROOT = Path(__file__).resolve().parents[2]

COMPUTE = """
import json, os, sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # as the first optimiser does
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits

import difficulty_service as ds
import trainer

ds.score_dataset, trainer.train  # so that what they need is loaded once

def compute(folder, threads):
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    scores = ds.score_dataset(
        str(files("difficulty_service.demo") / "digits.parquet"),
        backbone="builtin",
        id_column="id",
        limit=250,
        precision="fp32",
        scorers=("rmd", "suspicion"),
        progress=False,
    )
    columns = scores.to_pandas()

    generator = np.random.default_rng(0)
    labels = np.arange(96) % 3
    images = (generator.integers(0, 120, (96, 3, 16, 16)) + 60 * labels[:, None, None, None])
    recipe = {
        "name": "small",
        "model": {"name": "small_resnet", "widths": [4, 8], "blocks": [1, 1]},
        "optimiser": {"learning_rate": 0.05},
        "training": {"epochs": 2, "batch_size": 16, "precision": "fp32"},
    }
    run = trainer.train(
        recipe,
        train=(images.astype(np.uint8), labels),
        out=folder / "run",
        device="cpu",
        progress=False,
    )
    (parameters,) = folder.glob("run/**/model.safetensors")
    names = ("rmd", "label_margin", "suspicion")
    np.savez(
        folder / "results.npz",
        **{name: columns[name].to_numpy(np.float64) for name in names},
        losses=[epoch["train_loss"] for epoch in run.history],
        parameters=np.concatenate([each.ravel() for each in load_file(parameters).values()]),
    )


# Each in a process of its own, which need not load torch.
for folder, threads in json.loads(sys.argv[1]):
    process = os.fork()
    if not process:
        compute(Path(folder), threads)
        os._exit(0)
    if os.waitpid(process, 0)[1]:
        sys.exit(f"{folder} failed")
"""


def results_of(folder: Path, name: str, *threads: int) -> list[Results]:
    """Scores of digits and trained networks, of an interpreter with such instructions.

    There is one for each number of threads, each of a process of its own.
    """
    folders = [folder / f"{name} {number}" for number in range(len(threads))]
    for each in folders:
        each.mkdir()
    words = json.dumps([[str(each), number] for each, number in zip(folders, threads, strict=True)])
    subprocess.run(  # noqa: S603 - the code above
        [sys.executable, "-c", COMPUTE, words],
        env=environment_of(name, max(threads)),
        cwd=ROOT,
        check=True,
    )
    return [dict(np.load(each / "results.npz")) for each in folders]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, int], Results]:
    """Results by instruction set, number of threads, and attempt."""
    folder = tmp_path_factory.mktemp("processors")
    first, *others = available()
    once, again, two_threads = results_of(folder, first, 1, 1, 2)
    found = {(first, 1, 0): once, (first, 1, 1): again, (first, 2, 0): two_threads}
    return found | {(name, 1, 0): results_of(folder, name, 1)[0] for name in others}


def test_scores_agree_on_every_processor(results: dict[tuple[str, int, int], Results]) -> None:
    first, *others = results.values()

    for other in others:
        for name in ("rmd", "label_margin", "suspicion"):
            spread = first[name].std()
            assert np.abs(other[name] - first[name]).max() < 1e-3 * spread, name
            assert spearmanr(other[name], first[name]).statistic > 0.999_999, name
            flags = (other[name] > 0) != (first[name] > 0)
            assert np.abs(first[name][flags]).max(initial=0) < 1e-3 * spread


def test_training_agrees_on_every_processor_until_rounding_has_grown(
    results: dict[tuple[str, int, int], Results],
) -> None:
    first, *others = results.values()

    for other in others:
        np.testing.assert_allclose(other["losses"], first["losses"], rtol=1e-3)
        length = np.linalg.norm(first["parameters"])
        assert np.linalg.norm(other["parameters"] - first["parameters"]) < 1e-3 * length


def test_one_processor_gives_the_same_bits_again(
    results: dict[tuple[str, int, int], Results],
) -> None:
    name = next(iter(available()))

    for key, values in results[name, 1, 0].items():
        assert np.array_equal(values, results[name, 1, 1][key]), key
