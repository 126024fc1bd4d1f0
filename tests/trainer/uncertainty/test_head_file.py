"""The file of a head: read as it was written, found in a run, and refused where it does not fit."""

from pathlib import Path

import pytest
import torch

from difficulty_service.base.checked_safetensors import write_tensors
from difficulty_service.base.errors import TrainingError
from difficulty_service.features.description import FeatureKind
from trainer.uncertainty.head import TrainedHead, UncertaintyHead, read_head, write_head

FEATURES = {"backbone": "builtin", "weights_sha256": "00", "feature_dim": 4}


def make_head() -> TrainedHead:
    torch.manual_seed(0)
    head = UncertaintyHead(torch.randn(4), torch.rand(4) + 1, (8, 5))
    settings = {"uncertainty": {"hidden": [8, 5]}, "features": FeatureKind.of(FEATURES).kind()}
    return TrainedHead(head, settings)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two seeds, of which the second has a head."""
    for seed in (0, 1):
        folder = tmp_path / f"seed-{seed}"
        folder.mkdir()
        (folder / "recipe.json").touch()
    write_head(tmp_path / "seed-1" / "head.safetensors", make_head())
    return tmp_path


@pytest.mark.parametrize("name", ["", "seed-1", "seed-1/head.safetensors"])
def test_a_head_is_read_as_it_was_written(run: Path, name: str) -> None:
    features = torch.randn(3, 4)

    read = read_head(run / name)

    written = make_head()
    assert read.description == written.description
    assert torch.equal(read.head(features), written.head(features))


def test_a_run_with_several_heads_is_refused(run: Path) -> None:
    write_head(run / "seed-0" / "head.safetensors", make_head())

    with pytest.raises(TrainingError, match=r"holds 2 uncertainty heads; name one of .*seed-0/"):
        read_head(run)


def test_a_run_without_a_head_is_refused(run: Path) -> None:
    (run / "seed-1" / "head.safetensors").unlink()

    with pytest.raises(TrainingError, match="holds 0 uncertainty heads; train one"):
        read_head(run)


@pytest.mark.parametrize("content", [b"", b"not a head", b"\x08" + bytes(20)])
def test_a_file_that_is_no_head_is_named(run: Path, content: bytes) -> None:
    file = run / "seed-1" / "head.safetensors"
    file.write_bytes(content)

    with pytest.raises(TrainingError, match=r"head\.safetensors is damaged"):
        read_head(file)


def test_a_damaged_byte_is_found(run: Path) -> None:
    file = run / "seed-1" / "head.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)

    with pytest.raises(TrainingError, match=r"head\.safetensors is damaged"):
        read_head(file)


def test_the_model_of_a_run_is_no_head(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_tensors(file, {"weight": torch.zeros(3)})

    with pytest.raises(TrainingError, match="head of version 1: its version is None; train one"):
        read_head(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"there is no uncertainty head .*gone"):
        read_head(tmp_path / "gone")


def test_features_of_the_same_kind_are_taken() -> None:
    make_head().require_same_features(FeatureKind.of(FEATURES | {"dataset": "other"}), "there")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("backbone", "clip-vit-b16"),
        ("weights_sha256", "11"),
        ("feature_dim", 5),
        ("mode", "exact"),
        ("flip", True),
    ],
)
def test_features_of_another_kind_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(TrainingError, match=rf"other features than those in there \({key}: .* in"):
        make_head().require_same_features(FeatureKind.of(FEATURES | {key: value}), "there")
