"""Mahalanobis distances of samples by the features of a trained network.

Features are the inputs of the linear layer that returns the logits; the Gaussians are those of the
run's training samples, without augmentation, by the labels that it was trained on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from difficulty_service.base.errors import Setting, TrainingError
from trainer.config import TrainingConfig
from trainer.data import Splits
from trainer.metrics.mahalanobis import FeatureGaussians, fit_feature_gaussians
from trainer.runs.backbone import find_last_linear
from trainer.samples import Inputs, Samples
from trainer.training.accelerator import predict_split

SAMPLES_AT_ONCE = 1 << 16
"""Training samples whose features are in memory at once."""


class WithFeatures(nn.Module):
    """A classifier that returns, beside its logits, the inputs of the layer that makes them."""

    def __init__(self, model: nn.Module, last: nn.Module) -> None:
        """Wraps a model, of which `last` is the layer that returns the logits."""
        super().__init__()
        self.model = model
        self.last = [last]  # in a list, so that it is not registered twice

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits and features of a batch. Shape (samples, classes + dim)."""
        features: list[Tensor] = []
        hook = self.last[0].register_forward_pre_hook(
            lambda _layer, given: features.append(given[0])
        )
        try:
            logits = self.model(inputs)
        finally:
            hook.remove()
        return torch.cat([logits.float(), features[-1].float()], dim=1)


@dataclass(frozen=True)
class _LastRows:
    """The inputs of some samples of a split, at ascending positions."""

    inputs: Inputs
    positions: Tensor

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """Yields batches; see `trainer.samples.Inputs`."""
        return self.inputs.batches([self.positions[batch] for batch in plan], draws)


@dataclass(frozen=True)
class FeatureDistances:
    """A network with the Gaussians of its training samples, and the distances of its test samples.

    Attributes:
        distances: FEATURE_SCORES of the test samples, in their order. Float64, shape (test
            samples,).
    """

    network: WithFeatures
    num_classes: int
    settings: TrainingConfig
    accelerator: Accelerator
    gaussians: FeatureGaussians
    distances: Mapping[str, Tensor]

    def predict(self, samples: Samples) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Logits, float32 (samples, classes), and FEATURE_SCORES, float64 (samples,)."""
        both = predict_split(self.network, samples, self.settings, self.accelerator)
        return both[:, : self.num_classes], self.gaussians.scores(both[:, self.num_classes :])


def fit_distances(
    model: nn.Module, splits: Splits, settings: TrainingConfig, accelerator: Accelerator
) -> FeatureDistances:
    """Fits the Gaussians of the training samples; `splits` has test samples."""
    train, test = splits.train, splits.test
    if test is None:
        raise TrainingError("a run without test data has no distances", "train with data.test")
    first = next(iter(train.inputs.batches([torch.arange(min(2, len(train)))], None)))
    last = find_last_linear(model, first)
    if last is None:
        raise TrainingError(
            "Mahalanobis distances take a network that ends in a linear layer, whose inputs are "
            "the features, and this one does not",
            "leave out ",
            Setting("mahalanobis", value=True),
            parameter="mahalanobis",
        )
    network = WithFeatures(model, model.get_submodule(last)).eval()
    num_classes = len(train.class_names)

    def features() -> Iterator[tuple[Tensor, Tensor]]:
        for positions in torch.arange(len(train)).split(SAMPLES_AT_ONCE):
            labels = train.labels[positions]
            some = replace(train, labels=labels, inputs=_LastRows(train.inputs, positions))
            both = predict_split(network, some, settings, accelerator)
            yield both[:, num_classes:], labels

    gaussians = fit_feature_gaussians(features(), num_classes)
    both = predict_split(network, test, settings, accelerator)
    distances = gaussians.scores(both[:, num_classes:])
    return FeatureDistances(network, num_classes, settings, accelerator, gaussians, distances)
