"""Training an encoder, a classifier and a loss predictor together, with and without stop-gradient.

    python -m benchmarks.studies.stop_gradient [--folder runs/stop-gradient]

Figure 2 of Kirchhof et al. (2024) in reduced form: an encoder of two layers on features of the
built-in one, for 8,000 test images of CIFAR-100, in place of a ViT on the images of ImageNet. The
loss is the cross-entropy plus the squared difference of the uncertainty from it. With the
stop-gradient only the cross-entropy changes the encoder; without it, both losses do. Accuracy,
recall at 1 and R-AUROC on the 2,000 other images after each epoch are written to
docs/papers/stop_gradient.csv. A few minutes.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.evidence.tables import Row, write_rows
from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.zero_shot_uncertainty import extract
from trainer.training.plan import Purpose, plan_epoch, seed_of
from trainer.uncertainty.cached_features import read_cached_features
from trainer.uncertainty.head import SMALLEST, UncertaintyHead
from trainer.uncertainty.retrieval import evaluate_retrieval
from trainer.uncertainty.training import BETAS, squared_loss

TABLE = Path(__file__).parents[2] / "docs/papers/stop_gradient.csv"
IMAGES, IMAGES_PER_TEST = "cifar100_test.parquet", 5
WIDTHS, EMBEDDING = (512, 512), 128
SEEDS, EPOCHS, BATCH, RATE = 2, 15, 128, 1e-3
ARMS = {"with stop-gradient": True, "without": False}
MEASURES = ("accuracy", "recall_at_1", "r_auroc")


@dataclass(frozen=True)
class Split:
    """Standardised features, (samples, dim), and labels, (samples,)."""

    features: Tensor
    labels: Tensor


class Joint(nn.Module):
    """An encoder with a classifier and a loss predictor on top.

    Attributes:
        stops: Whether the encoder gets no gradient of the loss predictor.
    """

    def __init__(self, dim: int, num_classes: int, *, stops: bool) -> None:
        """Draws the initial parameters from the global generator."""
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(dim, WIDTHS[0]), nn.ReLU(), nn.Linear(WIDTHS[0], EMBEDDING)
        )
        self.classifier = nn.Linear(EMBEDDING, num_classes)
        self.predictor = UncertaintyHead(torch.zeros(EMBEDDING), torch.ones(EMBEDDING), WIDTHS)
        self.stops = stops

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings (samples, EMBEDDING), logits (samples, classes), uncertainties (samples,)."""
        embeddings = self.encoder(inputs)
        seen = embeddings.detach() if self.stops else embeddings
        # By its layers, because the head itself always stops the gradient.
        uncertainties = F.softplus(self.predictor.layers(seen)).squeeze(-1) + SMALLEST
        return embeddings, self.classifier(embeddings), uncertainties


def train(
    training: Split, test: Split, seed: int, epochs: int, *, stops: bool
) -> Iterator[dict[str, float]]:
    """Trains one arm; yields the measures on the test images after each epoch."""
    torch.manual_seed(seed_of(seed, Purpose.HEAD))
    num_classes = int(training.labels.max()) + 1
    model = Joint(training.features.shape[1], num_classes, stops=stops)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, weight_decay=1e-4)
    for epoch in range(epochs):
        for batch in plan_epoch(len(training.labels), BATCH, seed, epoch):
            _, logits, uncertainties = model(training.features[batch])
            losses = F.cross_entropy(logits, training.labels[batch], reduction="none")
            total = (losses + squared_loss(uncertainties, losses)).mean()
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
        with torch.no_grad():
            embeddings, logits, uncertainties = model(test.features)
        found = evaluate_retrieval(uncertainties, embeddings, test.labels)
        accuracy = (logits.argmax(dim=1) == test.labels).double().mean()
        yield {
            "accuracy": float(accuracy),
            "recall_at_1": found.recall_at_1,
            "r_auroc": np.nan if found.r_auroc is None else found.r_auroc,
        }


def read_splits(folder: Path) -> tuple[Split, Split]:
    """Training and test images of a feature store, drawn once."""
    cached, _ = read_cached_features(str(folder))
    features, labels = cached.features[:, 0].float(), cached.labels.long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, training = order.tensor_split([len(labels) // IMAGES_PER_TEST])
    mean, std = features[training].mean(dim=0), features[training].std(dim=0).clamp(min=1e-6)
    standard = (features - mean) / std
    return Split(standard[training], labels[training]), Split(standard[test], labels[test])


def rows(training: Split, test: Split, seeds: int = SEEDS, epochs: int = EPOCHS) -> Iterator[Row]:
    """The mean of each measure over the seeds, and its standard deviation, after each epoch."""
    for name, stops in ARMS.items():
        runs = [list(train(training, test, seed, epochs, stops=stops)) for seed in range(seeds)]
        for epoch, found in enumerate(zip(*runs, strict=True), start=1):
            row = {"arm": name, "epoch": str(epoch)}
            for measure in MEASURES:
                values = [each[measure] for each in found]
                row[measure] = f"{np.mean(values):.4f}"
                row[f"{measure}_sd"] = f"{np.std(values, ddof=1):.4f}"
            yield row


def main() -> None:
    """Extracts the features, trains both arms and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/stop-gradient"))
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--images", type=Path, help="table in place of the test images")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="two or more")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args()
    images = arguments.images or shared_folder() / "data" / IMAGES
    if not images.exists():
        sys.exit(skipped("CIFAR-100"))
    store = extract(images, arguments.folder / "features", "--label-column", "label")
    columns = ["arm", "epoch", *(f"{each}{end}" for each in MEASURES for end in ("", "_sd"))]
    found = rows(*read_splits(store), arguments.seeds, arguments.epochs)
    write_rows(arguments.table, columns, found)


if __name__ == "__main__":
    main()
