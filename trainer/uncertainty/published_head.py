"""The published heads of Kirchhof et al. (2024), of github.com/mkirchhof/url.

A checkpoint of their training, which is that of timm, holds the network under `model.`, the head
under `unc_module.` and the name of the network as `arch`. The head takes features as they are.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from difficulty_service.base.errors import BackboneError, Setting, TrainingError
from difficulty_service.base.files import file_sha256
from difficulty_service.base.pytorch_files import read_checkpoint
from trainer.uncertainty.head import TrainedHead, UncertaintyHead

CHECKPOINTS = (".pth", ".pt", ".tar")
"""Endings of files of PyTorch."""

LAYERS = "unc_module.unc_module."
"""Prefix of the linear layers, whose numbers count the activations between them, too."""


def read_published_head(path: Path, backbone: str | None = None) -> TrainedHead:
    """The head of a checkpoint, for features of the network in the same file.

    Uncertainties are those of the publication up to a factor for all, which is not in the file.

    Args:
        path: A `.pth.tar` of their training, whose code is never run.
        backbone: Name of the network, such as `timm:vit_base_patch16_224.augreg_in21k`; None for
            the one that the file names.

    Raises:
        TrainingError: There is no such file, or no such head in it; or it names no network.
    """
    if not path.is_file():
        raise TrainingError(f"there is no uncertainty head {path}")
    content = _read(path)
    tensors = content.get("state_dict", content)
    if not isinstance(tensors, dict):
        raise TrainingError(f"{path} holds no tensors by name")
    tensors = {str(name).removeprefix("module."): each for name, each in tensors.items()}
    backbone = backbone or _named_backbone(content, path)
    layers = {
        name.removeprefix(LAYERS): tensor
        for name, tensor in tensors.items()
        if name.startswith(LAYERS)
    }
    head = _head_of(layers, path)
    dim = len(head.mean)
    description: dict[str, Any] = {
        "features": {
            "backbone": backbone,
            "weights_sha256": file_sha256(path),
            "features": "penultimate",
            "feature_dim": dim,
            "flip": False,
        },
        "published": path.name,
    }
    return TrainedHead(head.eval(), description, path)


def _head_of(layers: dict[str, Tensor], path: Path) -> UncertaintyHead:
    widths = [len(tensor) for name, tensor in layers.items() if name.endswith(".bias")]
    if not widths:
        raise TrainingError(
            f"{path} holds no uncertainty head: no tensor is called {LAYERS}0.weight",
            "give a checkpoint whose --unc-module was pred-net",
        )
    try:
        dim = layers["0.weight"].shape[1]
        head = UncertaintyHead(torch.zeros(dim), torch.ones(dim), widths[:-1])
        head.layers.load_state_dict(layers)
    except (KeyError, RuntimeError, IndexError) as error:
        raise TrainingError(
            f"the uncertainty head of {path} has other layers than the published ones ({error})"
        ) from error
    return head


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_checkpoint(path)
    except BackboneError as error:
        raise TrainingError(error.problem) from error
    except Exception as error:  # on damaged files torch raises many types of errors
        raise TrainingError(f"{path} is damaged ({error})") from error
    if not isinstance(content, dict):
        raise TrainingError(f"{path} holds a {type(content).__name__}, expected a checkpoint")
    return content


def _named_backbone(content: dict[str, Any], path: Path) -> str:
    name = content.get("arch")
    if not isinstance(name, str):
        raise TrainingError(
            f"{path} does not say which network it is of",
            "name it as ",
            Setting("backbone", "timm:vit_base_patch16_224.augreg_in21k"),
        )
    return f"timm:{name}"
