"""Linear classifiers on features, for the methods that look at the predictions of one.

Whatever there is to choose is chosen by the likelihood of given labels that were held out, never
by which labels are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

FOLDS = 5
PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""Weight decays of the logistic probe, the strongest first: each starts from the one before."""

LBFGS_STEPS = 60
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Learning rates; smaller ones are tried while the smallest is the best."""

LEAST_RATE = 1e-5
EPOCHS, BATCH, MOMENTUM = 20, 256, 0.9
HELD_OUT = 0.1


def standardise(features: NDArray[np.float32]) -> Tensor:
    """Features of mean 0 and variance 1, with a last column of ones. Shape (samples, dim + 1)."""
    rows = torch.from_numpy(features)
    rows = (rows - rows.mean(dim=0)) / rows.std(dim=0).clamp(min=1e-6)
    return F.pad(rows, (0, 1), value=1.0)


def fit_logistic(rows: Tensor, labels: Tensor, penalty: float, parameters: Tensor) -> Tensor:
    """Logistic regression by L-BFGS, from given parameters. Shape (dim + 1, classes)."""
    parameters = parameters.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [parameters], max_iter=LBFGS_STEPS, line_search_fn="strong_wolfe", tolerance_change=1e-6
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(rows @ parameters, labels)
        loss = loss + penalty * parameters[:-1].square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    return parameters.detach()


def cross_validated(
    rows: Tensor, labels: Tensor, classes: int, seed: int = 0
) -> tuple[Tensor, float]:
    """Probabilities of samples that a probe has not seen, and the penalty that the labels chose.

    Args:
        rows: From `standardise`.
        labels: Given labels. Shape (samples,).
        classes: Number of classes.
        seed: Seed of the parts.

    Returns:
        Shape (samples, classes), and the penalty.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    folds = [order[start::FOLDS] for start in range(FOLDS)]
    seen = torch.cat(folds[1:])
    start = torch.zeros(rows.shape[1], classes)
    best, penalty, best_start = torch.inf, PENALTIES[0], start
    for each in PENALTIES:
        start = fit_logistic(rows[seen], labels[seen], each, start)
        loss = F.cross_entropy(rows[folds[0]] @ start, labels[folds[0]]).item()
        if loss >= best:
            break
        best, penalty, best_start = loss, each, start
    probabilities = torch.empty(len(labels), classes)
    probabilities[folds[0]] = (rows[folds[0]] @ best_start).softmax(dim=1)
    for number in range(1, FOLDS):
        seen = torch.cat([fold for place, fold in enumerate(folds) if place != number])
        fitted = fit_logistic(
            rows[seen], labels[seen], penalty, torch.zeros(rows.shape[1], classes)
        )
        probabilities[folds[number]] = (rows[folds[number]] @ fitted).softmax(dim=1)
    return probabilities, penalty


@dataclass(frozen=True)
class Dynamics:
    """What the epochs of a training run said of every sample.

    Attributes:
        margins: Logit of the label minus the largest other one, mean over epochs.
            Shape (samples,).
        error_norms: Length of the probabilities minus the one-hot label, for each epoch.
            Shape (epochs, samples).
        forgotten: How often a sample was wrong after it had been right; more than that for one
            never right. Shape (samples,).
        held_out_losses: NLL of the labels of samples held out, for each epoch; empty if none are.
    """

    margins: Tensor
    error_norms: Tensor
    forgotten: Tensor
    held_out_losses: Sequence[float]


def train(
    rows: Tensor, labels: Tensor, classes: int, rate: float, held_out: Tensor | None = None
) -> Dynamics:
    """Trains a linear layer by SGD and records each sample after every epoch.

    Args:
        rows: From `standardise`.
        labels: Given labels. Shape (samples,).
        classes: Number of classes.
        rate: Learning rate.
        held_out: Samples that are not trained on; None to train on all.
    """
    generator = torch.Generator().manual_seed(0)
    seen = torch.ones(len(labels), dtype=torch.bool)
    if held_out is not None:
        seen[held_out] = False
    chosen = seen.nonzero().squeeze(1)
    layer = torch.zeros(rows.shape[1], classes)
    velocity = torch.zeros_like(layer)
    one_hot = F.one_hot(labels, classes).float()
    margins, forgotten = torch.zeros(len(labels)), torch.zeros(len(labels))
    was_right = torch.zeros(len(labels), dtype=torch.bool)
    ever_right = was_right.clone()
    norms, losses = [], []
    for _ in range(EPOCHS):
        for batch in chosen[torch.randperm(len(chosen), generator=generator)].split(BATCH):
            inputs = rows[batch]
            error = (inputs @ layer).softmax(dim=1) - one_hot[batch]
            velocity.mul_(MOMENTUM).add_(inputs.T @ error, alpha=1 / len(batch))
            layer.sub_(velocity, alpha=rate)
        logits = rows @ layer
        own = logits.gather(1, labels[:, None]).squeeze(1)
        others = logits.scatter(1, labels[:, None], -torch.inf).amax(dim=1)
        margins += (own - others) / EPOCHS
        norms.append((logits.softmax(dim=1) - one_hot).norm(dim=1))
        right = own > others
        forgotten += was_right & ~right
        ever_right |= right
        was_right = right
        if held_out is not None:
            losses.append(F.cross_entropy(logits[held_out], labels[held_out]).item())
    forgotten[~ever_right] = EPOCHS
    return Dynamics(margins, torch.stack(norms), forgotten, losses)


def best_training(rows: Tensor, labels: Tensor, classes: int) -> tuple[float, int]:
    """The rate, and the number of epochs, after which held-out labels are likeliest."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    held_out = order[: round(HELD_OUT * len(labels))]
    rates = list(RATES)
    losses = [train(rows, labels, classes, rate, held_out).held_out_losses for rate in rates]
    while np.argmin(np.min(losses, axis=1)) == 0 and rates[0] > LEAST_RATE:
        rates.insert(0, rates[0] / np.sqrt(10))
        losses.insert(0, train(rows, labels, classes, rates[0], held_out).held_out_losses)
    rate, epoch = np.unravel_index(np.argmin(losses), (len(rates), EPOCHS))
    return float(rates[rate]), int(epoch) + 1
