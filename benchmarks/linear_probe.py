"""Accuracy of a linear classifier on the features of two stores: what a backbone is worth.

    difficulty extract 'cifar10_train_*.parquet' --backbone builtin --out train
    difficulty extract cifar10_test.parquet --backbone builtin --out test
    python -m benchmarks.linear_probe train test

Multinomial logistic regression on standardised features, by L-BFGS on all samples at once.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.features.store import open_store

WEIGHT_DECAY, STEPS = 1e-4, 150


def read_features(folder: Path) -> tuple[Tensor, Tensor]:
    """All features (samples, dim) and labels (samples,) of a store."""
    store = open_store(folder)
    shards = [store.read_shard(shard) for shard in range(store.num_shards)]
    return torch.cat([each.features for each in shards]), torch.cat(
        [each.labels for each in shards]
    )


def fit_probe(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Weights and, in the last row, biases. Shape (dim + 1, classes)."""
    features = F.pad(features, (0, 1), value=1.0)
    parameters = torch.zeros(features.shape[1], num_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameters], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        penalty = WEIGHT_DECAY * parameters[:-1].square().sum()
        loss = F.cross_entropy(features @ parameters, labels) + penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    return parameters.detach()


def main() -> None:
    """Prints the accuracy on both stores."""
    if len(sys.argv) != 3:  # noqa: PLR2004
        print("skipped: give the stores to train on and to test on, see the text above")
        return
    (features, labels), (test_features, test_labels) = map(read_features, map(Path, sys.argv[1:]))
    mean, std = features.mean(dim=0), features.std(dim=0).clamp(min=1e-6)
    features, test_features = (features - mean) / std, (test_features - mean) / std
    parameters = fit_probe(features, labels, int(labels.max()) + 1)
    for name, rows, truth in (("train", features, labels), ("test", test_features, test_labels)):
        predicted = (F.pad(rows, (0, 1), value=1.0) @ parameters).argmax(dim=1)
        print(f"{name} accuracy {(predicted == truth).float().mean():.4f}")


if __name__ == "__main__":
    main()
