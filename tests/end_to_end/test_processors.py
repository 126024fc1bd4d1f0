"""What is promised across processors, as docs/scaling.md says under "The same results"."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.processors import available, environment_of

Results = dict[str, NDArray[np.float64]]

ROOT = Path(__file__).resolve().parents[2]

COMPUTE = """
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

import difficulty_service as ds
import trainer

torch.set_num_threads(int(sys.argv[2]))
folder = Path(sys.argv[1])
scores = ds.score_dataset(
    str(files("difficulty_service.demo") / "digits.parquet"),
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
np.savez(
    folder / "results.npz",
    **{name: columns[name].to_numpy(np.float64) for name in ("rmd", "label_margin", "suspicion")},
    losses=[epoch["train_loss"] for epoch in run.history],
    parameters=np.concatenate([each.ravel() for each in load_file(parameters).values()]),
)
"""


def results_of(folder: Path, name: str, threads: int) -> Results:
    """Scores of digits and a trained network, of a process with such instructions."""
    folder.mkdir()
    subprocess.run(  # noqa: S603 - the code above
        [sys.executable, "-c", COMPUTE, str(folder), str(threads)],
        env=environment_of(name, threads),
        cwd=ROOT,
        check=True,
    )
    return dict(np.load(folder / "results.npz"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Results]:
    """Results by instruction set and number of threads."""
    folder = tmp_path_factory.mktemp("processors")
    kinds = [*((name, 1) for name in available()), (next(iter(available())), 2)]
    return {kind: results_of(folder / str(number), *kind) for number, kind in enumerate(kinds)}


@pytest.mark.slow
def test_scores_agree_on_every_processor(results: dict[tuple[str, int], Results]) -> None:
    first, *others = results.values()

    for other in others:
        for name in ("rmd", "label_margin", "suspicion"):
            spread = first[name].std()
            assert np.abs(other[name] - first[name]).max() < 1e-3 * spread, name
            assert spearmanr(other[name], first[name]).statistic > 0.999_999, name
            flags = (other[name] > 0) != (first[name] > 0)
            assert np.abs(first[name][flags]).max(initial=0) < 1e-3 * spread


@pytest.mark.slow
def test_training_agrees_on_every_processor_until_rounding_has_grown(
    results: dict[tuple[str, int], Results],
) -> None:
    first, *others = results.values()

    for other in others:
        np.testing.assert_allclose(other["losses"], first["losses"], rtol=1e-3)
        length = np.linalg.norm(first["parameters"])
        assert np.linalg.norm(other["parameters"] - first["parameters"]) < 1e-3 * length


@pytest.mark.slow
def test_one_processor_gives_the_same_bits_again(
    results: dict[tuple[str, int], Results], tmp_path: Path
) -> None:
    name = next(iter(available()))

    again = results_of(tmp_path / "again", name, 1)

    for key, values in results[name, 1].items():
        assert np.array_equal(values, again[key]), key
