"""Checkpoints, written and read; and runs that are not the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from difficulty_service.base.checksums import add_checksum
from difficulty_service.base.errors import TrainingError
from trainer.training.state import (
    Checkpoint,
    TrainingProgress,
    load_checkpoint,
    require_same_run,
    save_checkpoint,
)


def make_checkpoint() -> Checkpoint:
    return Checkpoint(
        identity={"seed": 0},
        progress=TrainingProgress(epoch=2, step=5, loss=1 / 3, correct=7, history=[{"epoch": 1}]),
        model={"weight": torch.rand(3, 3)},
        optimiser={"state": {0: {"momentum_buffer": torch.rand(3)}}, "param_groups": [{"lr": 0.1}]},
        loss={"sample_ids": ["a", "b"], "counts": torch.tensor([1, 0])},
        average={},
        scaler={},
    )


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved = make_checkpoint()

    save_checkpoint(tmp_path / "checkpoint.pt", saved)
    loaded = load_checkpoint(tmp_path / "checkpoint.pt")

    assert loaded.progress == saved.progress
    assert loaded.identity == saved.identity
    assert torch.equal(loaded.model["weight"], saved.model["weight"])
    buffers = (
        state["state"][0]["momentum_buffer"] for state in (loaded.optimiser, saved.optimiser)
    )
    assert torch.equal(*buffers)
    assert torch.equal(loaded.loss["counts"], saved.loss["counts"])


def test_a_checkpoint_from_before_gradients_were_measured_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    values = vars(make_checkpoint()) | {"version": 1}
    values["progress"] = {"epoch": 2, "step": 5, "loss": 0.5, "correct": 7, "seconds": 1.0}
    torch.save(values, path)
    add_checksum(path)

    progress = load_checkpoint(path).progress

    assert (progress.step, progress.gradient_norm, progress.measured_steps) == (5, 0.0, 0)


def test_a_failed_write_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, make_checkpoint())
    before = path.read_bytes()
    cannot_be_saved = Checkpoint({}, TrainingProgress(), {"model": lambda: None}, {}, {}, {}, {})  # type: ignore[dict-item]

    with pytest.raises(Exception, match="pickle"):
        save_checkpoint(path, cannot_be_saved)

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("kept_bytes", [0, 10, 1000])
def test_a_checkpoint_that_was_cut_short_is_named(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, make_checkpoint())
    path.write_bytes(path.read_bytes()[:kept_bytes])

    with pytest.raises(TrainingError, match=r"checkpoint\.pt cannot be read as a checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize("values", [{"version": 0}, {}, [1]])
def test_a_checkpoint_of_another_version_is_named(tmp_path: Path, values: object) -> None:
    torch.save(values, tmp_path / "checkpoint.pt")

    with pytest.raises(
        TrainingError, match=r"has version (0|None) of checkpoints, but .* reads 1; delete it"
    ):
        load_checkpoint(tmp_path / "checkpoint.pt")


def test_the_same_run_may_resume() -> None:
    identity = {"recipe": {"loss": {"name": "focal", "gamma": 3.0}}, "seed": 0}

    require_same_run(Path("a"), identity, {"seed": 0, "recipe": identity["recipe"]})


@pytest.mark.parametrize(
    ("current", "message"),
    [
        (
            {"recipe": {"loss": {"gamma": 2.0}}, "seed": 0},
            r"recipe\.loss\.gamma: 3\.0 then, 2\.0 now",
        ),
        ({"recipe": {"loss": {}}, "seed": 0}, r"recipe\.loss\.gamma: 3\.0 then, none now"),
        ({"recipe": {"loss": {"gamma": 3.0}}, "seed": 1}, r"seed: 0 then, 1 now"),
        (
            {"recipe": {"loss": {"gamma": 1.0}}, "seed": 1},
            r"gamma: 3\.0 then, 1\.0 now; seed: 0 then, 1 now",
        ),
    ],
)
def test_every_difference_is_named(current: Mapping[str, Any], message: str) -> None:
    saved = {"recipe": {"loss": {"gamma": 3.0}}, "seed": 0}

    with pytest.raises(TrainingError, match=message):
        require_same_run(Path("run/checkpoint.pt"), saved, current)
