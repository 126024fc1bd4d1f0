"""Published heads: a checkpoint with a network and its head, as their training writes it."""

import argparse
import io
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

from difficulty_service.base.errors import TrainingError
from difficulty_service.cli import create_app
from trainer.uncertainty.application import read_uncertainties
from trainer.uncertainty.published_head import read_published_head

MODEL = "test_vit.r160_in1k"
"""A network of timm with 370,000 parameters."""


def small_network() -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = timm.create_model(MODEL, pretrained=False)
    return network.eval()


def published_layers(dim: int) -> nn.Sequential:
    """The layers of the published head, before their offset of 1e-6."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(dim, 24), nn.LeakyReLU(), nn.Linear(24, 16), nn.LeakyReLU(), nn.Linear(16, 1)
    )


def write_checkpoint(path: Path, **changes: object) -> None:
    """A checkpoint as timm writes it, of a network that is wrapped with a head."""
    network = small_network()
    layers = published_layers(network.num_features)  # type: ignore[arg-type]
    tensors = {f"model.{name}": each for name, each in network.state_dict().items()}
    tensors |= {f"unc_module.unc_module.{name}": each for name, each in layers.state_dict().items()}
    content = {
        "epoch": 3,
        "arch": MODEL,
        "state_dict": tensors,
        "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]},
        "version": 2,
        "args": argparse.Namespace(model=MODEL, unc_module="pred-net", unc_width=24),
    }
    torch.save({**content, **changes}, path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four images of the size of the input."""
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(4):
        level = generator.uniform(0, 255, (5, 5, 3)).astype(np.uint8)
        Image.fromarray(level).resize((160, 160)).save(folder / f"{number}.png")
    return folder.parent


def apply(folder: Path, source: Path) -> None:
    """Applies the checkpoint in a folder by the command, as in a process of its own."""
    head, out = folder / "vit.pth.tar", folder / "uncertainty.parquet"
    create_app()(["uncertainty", str(head), str(source), "--out", str(out), "--device", "cpu"])


def test_images_have_the_uncertainties_of_the_published_network(
    tmp_path: Path, photos: Path
) -> None:
    write_checkpoint(tmp_path / "vit.pth.tar")

    apply(tmp_path, photos)

    network = small_network()
    layers = published_layers(network.num_features)  # type: ignore[arg-type]
    config = timm.data.resolve_data_config({}, model=network)
    transform = timm.data.create_transform(**config)
    found = read_uncertainties(tmp_path / "uncertainty.parquet").table
    for row in found.to_pylist():
        image = Image.open(io.BytesIO((photos / row["sample_id"]).read_bytes()))
        with torch.inference_mode():
            inner = network.forward_features(transform(image)[None])  # type: ignore[operator]
            features = network.forward_head(inner, pre_logits=True)  # type: ignore[operator]
            expected = 1e-6 + nn.functional.softplus(layers(features))
        assert row["uncertainty"] == pytest.approx(float(expected), rel=0.01)
    assert len(found) == 4
    assert len(set(found["uncertainty"].to_pylist())) == 4


def test_features_of_another_network_are_refused(tmp_path: Path, photos: Path) -> None:
    write_checkpoint(tmp_path / "vit.pth.tar")
    create_app()(["extract", str(photos), "--backbone", "builtin", "--out", str(tmp_path / "f")])

    with pytest.raises(TrainingError, match="trained on other features"):
        apply(tmp_path, tmp_path / "f")

    assert not (tmp_path / "uncertainty.parquet").exists()


def test_the_network_is_named_by_the_file_or_by_a_person(tmp_path: Path) -> None:
    path = tmp_path / "vit.pth"
    write_checkpoint(path)
    assert read_published_head(path).features.backbone == f"timm:{MODEL}"

    write_checkpoint(path, arch=None)

    assert read_published_head(path, "timm:other").features.backbone == "timm:other"
    with pytest.raises(TrainingError, match="does not say which network"):
        read_published_head(path)


def test_a_checkpoint_without_such_a_head_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.pth.tar"
    torch.save({"arch": MODEL, "state_dict": {"model.weight": torch.zeros(2)}}, path)

    with pytest.raises(TrainingError, match="holds no uncertainty head"):
        read_published_head(path)


def test_a_head_of_other_layers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pth.tar"
    tensors = {
        "unc_module.unc_module.0.weight": torch.zeros(3, 4),
        "unc_module.unc_module.0.bias": torch.zeros(3),
        "unc_module.unc_module.2.bias": torch.zeros(1),
    }
    torch.save({"arch": MODEL, "state_dict": tensors}, path)

    with pytest.raises(TrainingError, match="other layers"):
        read_published_head(path)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "evil.pth.tar"
    torch.save({"state_dict": {}, "args": Path("somewhere")}, path)

    with pytest.raises(TrainingError, match="only be read by running code"):
        read_published_head(path)
