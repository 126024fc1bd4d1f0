"""Trains the built-in encoder on CIFAR-100; MODEL_CARD.md has the results.

    python -m difficulty_service.backbones.builtin.train --train 'cifar100_train_*.parquet' \
        --test cifar100_test.parquet --out encoder.safetensors

The tables need two columns: `image` (encoded bytes) and `label` (0 to 99).
"""

import argparse
import io
import math
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from difficulty_service.backbones.builtin.network import TRAINED_DIM, BuiltinEncoder

MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)
NUM_CLASSES = 100

FEATURES = (
    "means of all blocks after the first stage, and of the inner layer of the first of the third"
)
"""Kept in the file, so that its checksum differs where the same weights gave other features."""


def read_images(pattern: str) -> tuple[Tensor, Tensor]:
    """All images, uint8 (samples, 3, 32, 32), and labels (samples,) of the tables of a glob."""
    images, labels = [], []
    folder = Path(pattern)
    for file in sorted(folder.parent.glob(folder.name)):
        table = pq.read_table(file, columns=["image", "label"])
        labels.append(torch.from_numpy(table["label"].to_numpy().astype(np.int64)))
        for image in table["image"].to_pylist():
            pixels = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
            images.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1))
    return torch.stack(images), torch.cat(labels)


class Classifier(nn.Module):
    """The encoder and a linear layer on its last features."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = BuiltinEncoder()
        self.head = nn.Linear(TRAINED_DIM, NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, 3, 32, 32) to (samples, NUM_CLASSES)."""
        return self.head(self.encoder(images)[:, -TRAINED_DIM:])


def normalise(images: Tensor) -> Tensor:
    """Scales uint8 images to zero mean and unit variance, channels last."""
    scaled = images.float().div(255)
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return ((scaled - mean) / std).contiguous(memory_format=torch.channels_last)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random crops of 35 to 100 % of the area, flips, and changes of brightness and contrast."""
    count = len(images)

    def uniform(low: float, high: float) -> Tensor:
        return torch.empty(count, device=images.device).uniform_(low, high, generator=generator)

    area, ratio = uniform(0.35, 1).sqrt(), uniform(math.log(0.8), math.log(1.25)).mul(0.5).exp()
    width, height = (area * ratio).clamp(max=1), (area / ratio).clamp(max=1)
    side = torch.sign(uniform(-1, 1))
    zeros = torch.zeros_like(side)
    rows = [
        torch.stack([width * side, zeros, uniform(-1, 1) * (1 - width)], dim=1),
        torch.stack([zeros, height, uniform(-1, 1) * (1 - height)], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), list(images.shape), align_corners=False)
    images = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    contrast, brightness = uniform(0.7, 1.3).view(-1, 1, 1, 1), uniform(-0.4, 0.4).view(-1, 1, 1, 1)
    images = images * contrast + brightness
    return images.contiguous(memory_format=torch.channels_last)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Fraction of images whose label the model ranks first."""
    model.eval()
    with torch.inference_mode():
        hits = [
            (model(normalise(batch)).argmax(dim=1) == target).sum()
            for batch, target in zip(images.split(500), labels.split(500), strict=True)
        ]
    model.train()
    return float(torch.stack(hits).sum()) / len(images)


def train(images: Tensor, labels: Tensor, arguments: argparse.Namespace) -> Classifier:
    """Trains with cross-entropy, SGD and a one-cycle schedule, in bfloat16 autocast."""
    generator = torch.Generator().manual_seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    model = Classifier().to(memory_format=torch.channels_last)
    steps = len(images) // arguments.batch_size
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=arguments.learning_rate, total_steps=steps * arguments.epochs
    )
    for epoch in range(arguments.epochs):
        start, total = time.monotonic(), 0.0
        order = torch.randperm(len(images), generator=generator)
        for batch in order[: steps * arguments.batch_size].split(arguments.batch_size):
            inputs = augment(normalise(images[batch]), generator)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(inputs), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        seconds = time.monotonic() - start
        print(f"epoch {epoch + 1}: loss {total / steps:.4f}, {seconds:.0f} s", flush=True)  # noqa: T201
    return model


def main() -> None:
    """Trains, prints the test accuracy and writes the folded encoder in half precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", required=True, help="glob of the training tables")
    parser.add_argument("--test", required=True, help="glob of the test tables")
    parser.add_argument("--out", type=Path, required=True, help="safetensors file to write")
    parser.add_argument("--epochs", type=int, default=45)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    model = train(*read_images(arguments.train), arguments)
    test_accuracy = accuracy(model, *read_images(arguments.test))
    print(f"CIFAR-100 test accuracy {test_accuracy:.4f}")  # noqa: T201
    state = model.encoder.fold().state_dict()
    tensors = {name: tensor.half().contiguous() for name, tensor in state.items()}
    description = {"cifar100_test_accuracy": f"{test_accuracy:.4f}", "features": FEATURES}
    save_file(tensors, arguments.out, metadata=description)


if __name__ == "__main__":
    main()
