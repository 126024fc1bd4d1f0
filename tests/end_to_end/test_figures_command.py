"""`difficulty figures` on a small run, and what it refuses."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.recipes.file import recipe_from_dict
from trainer.runs.train import RunRequest, run_seed

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, write_features: Callable[..., str]) -> Path:
    """One epoch of a probe."""
    folder = tmp_path_factory.mktemp("runs") / "probe"
    values = {
        "name": "probe",
        "data": {"kind": "features", "validation": 0.2, "train": write_features(folder / "data")},
        "model": {"name": "probe"},
        "training": {"epochs": 1, "batch_size": 16, "precision": "fp32"},
    }
    run_seed(RunRequest(recipe_from_dict(values, "the test"), 0, folder, "cpu"))
    return folder


@pytest.mark.slow
def test_figures_lists_what_it_drew_and_what_it_left_out(
    difficulty: Command, run: Path, tmp_path: Path
) -> None:
    done = difficulty("figures", run, "--out", tmp_path / "out", "--format", "png")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("reliability.png: Accuracy in 15 bins of confidence")
    assert any(line.startswith("left out of gammas-over-epochs: no adafocal.csv") for line in lines)
    assert (tmp_path / "out" / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "index.md").is_file()


def test_an_option_for_score_files_without_any_is_refused(
    difficulty: Command, run: Path, tmp_path: Path
) -> None:
    done = difficulty("figures", run, "--out", tmp_path / "out", "--score-column", "md")

    assert done.returncode == 2
    assert "no score file is given" in done.stderr
    assert not (tmp_path / "out").exists()
