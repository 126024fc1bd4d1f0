"""What a run notes of each epoch besides metrics: how sure it is, and the norms of its last layer.

Mukhoti et al. (2020) follow these over training: overfitting of the NLL comes from samples that are
classified wrongly (their figures 1 and 2a to 2c), whose entropy falls (2d) while the weights of the
last layer grow (2e), and its gradients tell by how much (3b to 3d).
"""

import torch
from torch import Tensor, nn

from trainer.metrics.predictions import confidence_and_correct, entropy
from trainer.metrics.proper_scores import nll_per_sample
from trainer.training.sharding import whole


def observe_predictions(logits: Tensor, targets: Tensor) -> dict[str, float | None]:
    """Mean NLL and entropy in nats, of the rightly and of the wrongly classified samples too.

    By name: "entropy", and "nll" and "entropy" with the endings "_right" and "_wrong", None where
    there are no such samples.
    """
    _, correct = confidence_and_correct(logits, targets)
    quantities = {"nll": nll_per_sample(logits, targets), "entropy": entropy(logits)}
    observed: dict[str, float | None] = {"entropy": float(quantities["entropy"].mean())}
    for name, values in quantities.items():
        observed[f"{name}_right"] = _mean(values[correct])
        observed[f"{name}_wrong"] = _mean(values[~correct])
    return observed


def last_layer(model: nn.Module) -> nn.Linear | None:
    """The last linear layer of a model in the order in which it was built; None without any."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return layers[-1] if layers else None


def weight_norm(layer: nn.Linear) -> float:
    """Euclidean norm of the weights of a layer, without its bias."""
    return float(layer.weight.detach().double().norm())


def gradient_norm(layer: nn.Linear | None) -> Tensor:
    """Euclidean norm of the gradient of a layer's weights at one step, and 1. Shape (2,), float32.

    Both are 0 where the layer has no gradient or one that is not finite, as in a step that half
    precision skips. On the layer's device.
    """
    if layer is None or layer.weight.grad is None:
        return torch.zeros(2, device=None if layer is None else layer.weight.device)
    norm = whole(layer.weight.grad.detach()).float().norm()
    counts = norm.isfinite()
    return torch.stack([torch.where(counts, norm, 0.0), counts.float()])


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None
