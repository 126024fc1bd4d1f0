"""A finished run on images up to its penultimate features, as the service takes a backbone.

`difficulty_service.backbones.plugged` says what it expects.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from difficulty_service.base.errors import TrainingError
from trainer.config import ImageData
from trainer.data.images import evaluation_margin
from trainer.models.layers import Normalisation
from trainer.run_folder import FINAL, MODEL, RECIPE, seed_folders
from trainer.runs.model_file import SavedModel, read_model, read_recipe


@dataclass(frozen=True)
class RunNetwork:
    """The network of a run without its classifier, with the fields of a `PluggedNetwork`."""

    reference: str
    network: nn.Module
    weights: Path
    size: int
    resize: int
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


def read_network(folder: Path) -> RunNetwork:
    """Reads a network that `difficulty train` trained on images."""
    seed = _find_seed(folder)
    data = _images_of_finished_run(seed)
    saved = read_model(seed)
    height, width = saved.spec.shape[1:]
    if height != width:
        raise _unfit(seed, f"takes images of {width} x {height} pixels, and a backbone square ones")
    # `build_model` puts the normalisation first; the service normalises images itself.
    normalisation = cast(Normalisation, saved.model.get_submodule("normalisation"))
    return RunNetwork(
        reference=str(seed.absolute()),
        network=_without_classifier(saved, seed),
        weights=seed / MODEL,
        size=height,
        resize=round(height * evaluation_margin(data)),
        interpolation="bilinear",
        mean=_per_channel(normalisation.mean),
        std=_per_channel(normalisation.std),
    )


def _find_seed(folder: Path) -> Path:
    """The folder of the seed, which may be the only one in the given folder."""
    if (folder / RECIPE).is_file():
        return folder
    seeds = seed_folders(folder)
    if len(seeds) > 1:
        names = ", ".join(seed.name for seed in seeds)
        raise TrainingError(
            f"{folder} holds several networks: {names}", "name one of these folders"
        )
    return seeds[0]


def _images_of_finished_run(seed: Path) -> ImageData:
    data = read_recipe(seed)[0].data
    if data.kind != "images":
        raise _unfit(seed, f"was trained on {data.kind}, and a backbone takes images")
    if not all((seed / name).is_file() for name in (MODEL, FINAL)):
        raise TrainingError(
            f"the run {seed} is not finished", "go on with `difficulty train --resume`"
        )
    return data


def _unfit(seed: Path, reason: str) -> TrainingError:
    return TrainingError(f"the network of {seed} {reason}", "name another run")


def _without_classifier(saved: SavedModel, seed: Path) -> nn.Module:
    """The network up to the input of the linear layer that returns its logits.

    A forward pass of a blank image shows which layer that is, whoever wrote the network.
    """
    network = saved.model.get_submodule("network").eval()
    last = find_last_linear(network, torch.zeros(1, *saved.spec.shape))
    if last is None:
        raise _unfit(seed, "does not end in a linear layer, whose inputs would be the features")
    network.set_submodule(last, nn.Identity())
    return network


def find_last_linear(network: nn.Module, inputs: Tensor) -> str | None:
    """Name of the linear layer that returns the logits; None where another layer does.

    A forward pass of a batch of inputs shows which one it is.
    """
    outputs: dict[str, Tensor] = {}

    def keep_output(name: str, layer: nn.Module) -> RemovableHandle:
        def keep(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
            outputs[name] = output

        return layer.register_forward_hook(keep)

    hooks = [
        keep_output(name, layer)
        for name, layer in network.named_modules()
        if name and isinstance(layer, nn.Linear)
    ]
    with torch.no_grad():
        logits = network(inputs)
    for hook in hooks:
        hook.remove()
    return next((name for name, output in outputs.items() if output is logits), None)


def _per_channel(statistic: Tensor) -> tuple[float, ...]:
    """Values in [0, 1], from a buffer in [0, 255] of shape (channels, 1, 1)."""
    return tuple((statistic.flatten().double() / 255).tolist())
