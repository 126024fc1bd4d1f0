"""Which images may a training set lose, and does an order by difficulty help?

Small residual networks are trained from scratch on 5,000 images of CIFAR-10 and of CIFAR-100, with
right labels and with wrong ones (CIFAR-10N, a random annotator, 17 %; CIFAR-100, a fifth changed at
random). Each choice keeps 90, 70, 50 or 30 % of every class: at random, the easiest or the hardest
by RMD, the least doubtful by p_wrong, or what published methods keep: the largest EL2N (Paul et al.
2021) and the most forgotten (Toneva et al. 2019). Curricula keep all images and change their order.

    make study-pruning

Every network sees what it keeps equally often, so that fewer images are fewer steps. RMD and
p_wrong come from MobileNetV2 and the given labels; EL2N and forgetting from three networks of the
same kind, trained on all images. Accuracy is that of all test images with their official labels;
differences from random choices are paired by the seed. All files are in runs/study-pruning, where
a study that was stopped resumes; the table is `pruning.csv` of the evidence.
"""

import argparse
import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from benchmarks.evidence.noise import change_at_random
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.tables import write_rows
from benchmarks.evidence.training.comparison import paired_difference
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.cifar10 import run_difficulty, with_labels
from benchmarks.studies.tables import seed_metrics
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.base.files import replacing
from difficulty_service.base.threads import num_workers
from difficulty_service.scores.file import read_scores
from trainer.models.residual import small_resnet
from trainer.samples import InputSpec

DATASETS = ("cifar10", "cifar100")
LABELS = ("right", "wrong")
WRONG_COLUMN = {"cifar10": "noisy_rand1"}
"""Columns of labels that people gave; without one, labels are changed at random."""

WRONG_RATE = 0.2
IMAGES = 5000
SHARES = (0.9, 0.7, 0.5, 0.3)
NETWORK = ("model.widths=[16, 32, 96]", "model.blocks=[1, 1, 1]")
TRAINING = ("training.batch_size=64", "data.augmentation=flip", "data.validation=0.0")
RATE = 0.2
"""Largest learning rate, that of the recipe."""

SCORING_NETWORKS = 3
EARLY = 0.2
"""Fraction of the epochs after which EL2N is measured."""

RANDOM = "random"
ALL = "all images"
SCORES = {
    "easy by RMD": ("rmd", 1),
    "hard by RMD": ("rmd", -1),
    "least p_wrong": ("p_wrong", 1),
    "largest EL2N": ("el2n", -1),
    "most forgotten": ("forgotten", -1),
}
"""Column of each choice, and 1 where the smallest values are kept, -1 where the largest are."""

CURRICULA = ("easy_first", "hard_first", "mixed")


@dataclass(frozen=True)
class Pool:
    """Images to choose from, under one set of labels.

    Attributes:
        table: File with the columns `image` and `label`.
        scores: Score file of the images.
        labels: Their given labels. Shape (images,).
        columns: Values of the images, by the names that SCORES uses. Shape (images,) each.
    """

    table: Path
    scores: Path
    labels: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.float64]]


def prepare(name: str, labels: str, folder: Path, epochs: int) -> Pool:
    """Selects and scores the images, where missing."""
    folder.mkdir(parents=True, exist_ok=True)
    table, scores = folder / "images.parquet", folder / "scores.parquet"
    if not table.exists():
        with replacing(table) as temporary:
            pq.write_table(select_images(name, labels), temporary)
    labels_of_rows = pq.read_table(table, columns=["label"])["label"].to_numpy()
    if not scores.exists():
        features = extract(table, folder.parent / "features")
        given = {f"{table.name}#{row}": label for row, label in enumerate(labels_of_rows)}
        relabelled = with_labels(features, given, "label", folder / "features")
        run_difficulty("score", relabelled, "--out", scores)
    dynamics = folder / "dynamics.npz"
    if not dynamics.exists():
        found = [training_dynamics(table, epochs, seed) for seed in range(SCORING_NETWORKS)]
        means = {key: np.mean([each[key] for each in found], axis=0) for key in found[0]}
        with replacing(dynamics) as temporary, temporary.open("wb") as out:
            np.savez(out, **means)
    known = read_scores(scores, ["sample_id", "rmd", "p_wrong"]).table
    rows = [int(each.rpartition("#")[2]) for each in known["sample_id"].to_pylist()]
    order = np.argsort(rows)
    columns = {
        each: known[each].to_numpy().astype(np.float64)[order] for each in ("rmd", "p_wrong")
    }
    with np.load(dynamics) as arrays:
        return Pool(table, scores, labels_of_rows, columns | dict(arrays))


def extract(table: Path, features: Path) -> Path:
    """Features of the images by MobileNetV2, which do not depend on the labels."""
    if not (features / "errors.parquet").exists():
        weights = shared_folder() / "weights/mobilenetv2_100.imagenet1k.safetensors"
        backbone = ("--backbone", "timm:mobilenetv2_100", "--weights", weights)
        run_difficulty("extract", table, "--label-column", "label", *backbone, "--out", features)
    return features


def select_images(name: str, labels: str, count: int = IMAGES) -> pa.Table:
    """Evenly spaced training images with labels of one kind."""
    files = sorted(shared_folder().glob(f"data/{name}_train_*.parquet"))
    images = ds.dataset(files)
    rows = np.linspace(0, images.count_rows() - 1, count).round().astype(np.int64)
    column = WRONG_COLUMN.get(name, "label") if labels == "wrong" else "label"
    table = images.take(pa.array(rows), columns=["image", column])
    given = table[column].to_numpy().astype(np.int64)
    if labels == "wrong" and column == "label":
        classes = int(given.max()) + 1
        given = change_at_random(given, classes, WRONG_RATE, np.random.default_rng(0))
    return pa.table({"image": table["image"], "label": given})


def training_dynamics(table: Path, epochs: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """What one network shows of its training images while it learns them.

    Args:
        table: The images.
        epochs: Number of epochs.
        seed: Seed of the initial parameters, the order and the flips.

    Returns:
        `el2n`, the Euclidean norm of the probabilities minus the one-hot label early in training,
        and `forgotten`, how often an image that was classified as labelled no longer is when the
        next epoch comes to it; infinite if it never was. Shape (images,) each.
    """
    torch.manual_seed(seed)
    images, labels = read_pixels(table)
    classes = int(labels.max()) + 1
    network = small_resnet(InputSpec((3, 32, 32)), classes, widths=(16, 32, 96), blocks=(1, 1, 1))
    optimiser = torch.optim.SGD(
        network.parameters(), lr=RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    steps = epochs * -(-len(labels) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, RATE, total_steps=steps, pct_start=0.2
    )
    right = torch.zeros(len(labels), dtype=torch.bool)
    ever, forgotten = torch.zeros_like(right), torch.zeros(len(labels))
    norms = torch.zeros(len(labels))
    early = max(1, round(EARLY * epochs))
    for epoch in range(1, epochs + 1):
        network.train()
        for rows in torch.randperm(len(labels)).split(64):
            flipped = torch.rand(len(rows), 1, 1, 1) < 0.5  # noqa: PLR2004 - as often as not
            batch = torch.where(flipped, images[rows].flip(3), images[rows])
            logits = network(batch)
            optimiser.zero_grad()
            F.cross_entropy(logits, labels[rows]).backward()
            optimiser.step()
            schedule.step()
            now = logits.argmax(dim=1) == labels[rows]
            forgotten[rows] += (right[rows] & ~now).float()
            ever[rows] |= now
            right[rows] = now
        if epoch == early:
            norms = error_norms(network, images, labels)
    forgotten[~ever] = torch.inf
    return {"el2n": norms.double().numpy(), "forgotten": forgotten.double().numpy()}


@torch.inference_mode()
def error_norms(network: torch.nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Norms of the probabilities minus the one-hot labels. Shape (images,)."""
    network.eval()
    probabilities = torch.cat([network(batch).softmax(dim=1) for batch in images.split(500)])
    return (probabilities - F.one_hot(labels, probabilities.shape[1])).norm(dim=1)


def read_pixels(table: Path) -> tuple[Tensor, Tensor]:
    """Standardised images of shape (images, 3, height, width), and their labels."""
    rows = pq.read_table(table)
    opened = (Image.open(io.BytesIO(each)).convert("RGB") for each in rows["image"].to_pylist())
    pixels = torch.from_numpy(np.stack([np.asarray(each) for each in opened])).permute(0, 3, 1, 2)
    images = pixels.float()
    mean, std = images.mean(dim=(0, 2, 3), keepdim=True), images.std(dim=(0, 2, 3), keepdim=True)
    return (images - mean) / std, torch.tensor(rows["label"].to_pylist())


def kept_rows(pool: Pool, choice: str, share: float, seed: int) -> NDArray[np.int64]:
    """Rows that a choice keeps, the same share of each class, ascending.

    Images of equal value, such as a network's counts, are in an order by the seed; those without a
    score are the last.
    """
    order = np.random.default_rng(seed).permutation(len(pool.labels))
    if choice != RANDOM:
        column, sign = SCORES[choice]
        order = order[np.argsort(sign * pool.columns[column][order], kind="stable")]
    parts = (order[pool.labels[order] == label] for label in np.unique(pool.labels))
    return np.sort(np.concatenate([part[: round(share * len(part))] for part in parts]))


def trial_of(pool: Pool, choice: str, share: float, seed: int) -> Trial:
    """The training on what a choice keeps, whose table is written where it is missing."""
    name = f"{choice.replace(' ', '-')}-{share:g}-{seed}"
    path = pool.table.parent / "kept" / f"{name}.parquet"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        kept = pq.read_table(pool.table).take(pa.array(kept_rows(pool, choice, share, seed)))
        with replacing(path) as temporary:
            pq.write_table(kept, temporary)
    return Trial(f"{choice}, {share:g}", (f"data.train={path}",))


def curriculum(pool: Pool, order: str) -> Trial:
    """The training on all images in an order by RMD."""
    settings = (f"data.train={pool.table}", f"sampling.order={order}")
    return Trial(order, (*settings, f"sampling.scores={pool.scores}"))


def trials_of(pool: Pool, seed: int) -> dict[tuple[str, float], Trial]:
    """All trainings of one seed, by choice and share."""
    trials = {(ALL, 1.0): Trial(ALL, (f"data.train={pool.table}",))}
    for choice in (RANDOM, *SCORES):
        for share in SHARES:
            trials[choice, share] = trial_of(pool, choice, share, seed)
    return trials | {(order, 1.0): curriculum(pool, order) for order in CURRICULA}


def run_study(name: str, labels: str, arguments: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Trains what is missing under one set of labels; the rows of the table."""
    folder = (arguments.folder / name / labels).resolve()
    pool = prepare(name, labels, folder, arguments.epochs)
    settings = (
        f"data.test={(shared_folder() / f'data/{name}_test.parquet').resolve()}",
        "data.label_column=label",
        "training.precision=fp32",
        *(f"training.epochs={arguments.epochs}", *NETWORK, *TRAINING),
    )
    study = Study("cifar10_small_resnet", settings, folder / "runs", arguments.jobs)
    found: dict[tuple[str, float], list[float]] = {}
    for seed in range(arguments.seeds):
        trials = trials_of(pool, seed)
        run_trials(study, list(trials.values()), [seed])
        for key, trial in trials.items():
            metrics = seed_metrics(study, trial, [seed])[seed]["metrics"]
            found.setdefault(key, []).append(100 * metrics["raw"]["accuracy"])
    for (choice, share), values in found.items():
        reference = (ALL, 1.0) if choice in CURRICULA else (RANDOM, share)
        row = {"dataset": name, "labels": labels, "choice": choice, "share": f"{share:g}"}
        row |= {"accuracy": f"{np.mean(values):.2f}"}
        if len(values) > 1:
            row["sd"] = f"{np.std(values, ddof=1):.2f}"
            if choice not in (ALL, RANDOM):
                mean, error = paired_difference(values, found[reference])
                row |= {"difference": f"{mean:+.2f}", "interval": f"{error:.2f}"}
        yield row


COLUMNS = ("dataset", "labels", "choice", "share", "accuracy", "sd", "difference", "interval")


def main() -> None:
    """Runs what is unfinished, then writes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--labels", nargs="+", choices=LABELS, default=list(LABELS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of every choice")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=num_workers(), help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-pruning"))
    parser.add_argument("--table", type=Path, default=DOCS / TABLES / "pruning.csv")
    arguments = parser.parse_args()
    for name in arguments.datasets:
        if not list(shared_folder().glob(f"data/{name}_train_*.parquet")):
            sys.exit(skipped(name))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    rows = [
        row | {"machine": machine()}
        for name in arguments.datasets
        for labels in arguments.labels
        for row in run_study(name, labels, arguments)
    ]
    write_rows(arguments.table, (*COLUMNS, "machine"), rows)
    write_page(DOCS)
    for row in rows:
        print(" | ".join(row.get(column, "") for column in COLUMNS))


if __name__ == "__main__":
    main()
