"""The uncertainty head: a small network from features to one positive number.

An uncertainty head on disk: one safetensors file, with all that is needed to apply it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from difficulty_service.base.checked_safetensors import UNREADABLE, read_tensors, write_tensors
from difficulty_service.base.errors import TrainingError
from difficulty_service.base.files import replacing
from difficulty_service.base.json_text import parse_json
from difficulty_service.features.description import FeatureKind
from trainer.models.layers import STD_FLOOR
from trainer.run_folder import HEAD, seed_folders

NEGATIVE_SLOPE = 0.01
"""Slope of the leaky ReLU between the layers, as in the published code."""

SMALLEST = 1e-6
"""Added to every uncertainty, so that it stays positive where softplus underflows."""


class UncertaintyHead(nn.Module):
    """Predicts the loss of a sample from its features; larger is more uncertain.

    Kirchhof et al. (2024) train it behind a stop-gradient: features are detached, so that no
    gradient reaches what made them. Unlike their code, it standardises the features first, so that
    the learning rate does not depend on the scale of the backbone.

    Attributes:
        mean: Mean of the training features. Shape (dim,).
        std: Standard deviation of the training features, 1 for constant ones. Shape (dim,).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, hidden: Sequence[int] = (512, 512)) -> None:
        """Draws the initial parameters from the global generator."""
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", torch.where(std < STD_FLOOR, 1.0, std).float())
        widths = (len(mean), *hidden)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(NEGATIVE_SLOPE)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, features: Tensor) -> Tensor:
        """Uncertainties above 0, (samples,), of features (samples, dim), which get no gradient."""
        standard = (features.detach().to(self.mean.dtype) - self.mean) / self.std
        return F.softplus(self.layers(standard)).squeeze(-1) + SMALLEST


FORMAT_VERSION = 1
METADATA_KEY = "difficulty"
TRAIN_ONE = "train one with uncertainty.epochs above 0"


@dataclass(frozen=True)
class TrainedHead:
    """A head and where it comes from.

    Attributes:
        weights: File with the weights of the backbone, where these came with the head.
        description: JSON values: `features` with what made its features and, where there was one,
            the comparison by which their precision was chosen; `uncertainty` with its settings,
            `classifier`, `dataset`, `seed` and `package_version`.
    """

    head: UncertaintyHead
    description: Mapping[str, Any]
    weights: Path | None = None

    @property
    def features(self) -> FeatureKind:
        """What made the features that it was trained on."""
        return FeatureKind.of(self.description["features"])

    def require_same_features(self, description: FeatureKind, location: str) -> None:
        """Refuses features that another backbone made, or the same one in another way."""
        names = ("for the head", f"in {location}")
        # A published head does not say how the features were computed, but for its network.
        published = self.weights is not None
        compare = self.features.known_differences if published else self.features.kind_differences
        different = compare(description, names)
        if different:
            raise TrainingError(
                f"the head was trained on other features than those in {location} "
                f"({'; '.join(different)})",
                "extract them as those of the head, or train a head on features of this kind",
            )


def write_head(path: Path, trained: TrainedHead) -> None:
    """Writes a head; the file appears whole or not at all."""
    described = {"format_version": FORMAT_VERSION, **trained.description}
    metadata = {METADATA_KEY: json.dumps(described, sort_keys=True, allow_nan=False)}
    with replacing(path) as temporary:
        write_tensors(temporary, trained.head.state_dict(), metadata)


def read_head(path: Path) -> TrainedHead:
    """Reads a head from its file, the folder of its seed, or that of a run with one seed."""
    file = _find(path)
    try:
        tensors, metadata = read_tensors(file)
        description = parse_json(metadata.get(METADATA_KEY, "{}"))
    except FileNotFoundError:
        raise TrainingError(f"there is no uncertainty head {file}", TRAIN_ONE) from None
    except UNREADABLE as error:
        raise TrainingError(f"{file} is damaged ({error})", "train again") from error
    version = description.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise TrainingError(
            f"{file} is not an uncertainty head of version {FORMAT_VERSION}: its version is "
            f"{version}",
            TRAIN_ONE,
        )
    try:
        hidden = description["uncertainty"]["hidden"]
        head = UncertaintyHead(tensors["mean"], tensors["std"], hidden)
        head.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise TrainingError(f"{file} is damaged ({error!r})", "train again") from error
    return TrainedHead(head.eval(), description)


def _find(path: Path) -> Path:
    if not path.is_dir() or (path / HEAD).exists():
        return path / HEAD if path.is_dir() else path
    heads = [folder / HEAD for folder in seed_folders(path) if (folder / HEAD).exists()]
    if len(heads) != 1:
        raise TrainingError(
            f"{path} holds {len(heads)} uncertainty heads",
            f"name one of {', '.join(map(str, heads))}" if heads else TRAIN_ONE,
        )
    return heads[0]
