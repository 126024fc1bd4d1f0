"""What an uncertainty head that was trained on CIFAR-100 knows of images of other classes.

    python -m benchmarks.studies.zero_shot_uncertainty [--seeds 2] [--folder runs/zero-shot]

R-AUROC on test images of CIFAR-100, CIFAR-10 and Tiny ImageNet, beside the entropy of the
classifier, which needs no labels either, and beside RMD of the scored images, which knows the label
of each. Then on CIFAR-10: rank correlations with RMD and with the entropy of the votes of about
fifty people, the AUROC of images on which these disagree, and the share of images that are more
uncertain after a corruption. Features are those of the built-in encoder. What was made before is
not made again.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from scipy.stats import entropy, spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.cifar10 import run_difficulty
from difficulty_service.scores.file import read_scores
from trainer.runs.model_file import read_model
from trainer.uncertainty.application import read_uncertainties
from trainer.uncertainty.cached_features import CachedFeatures, read_cached_features
from trainer.uncertainty.retrieval import evaluate_retrieval

TRAINING, RUNS = "cifar100_train_*.parquet", 3
TESTS = {
    "CIFAR-100": ("cifar100_test.parquet", ("--label-column", "label")),
    "CIFAR-10": ("cifar10_test.parquet", ("--id-column", "index", "--label-column", "label")),
    "Tiny ImageNet": ("tiny_imagenet_val2000.parquet", ("--label-column", "label")),
}
PEOPLE = "CIFAR-10"
AGREEMENT = 0.8
"""Share of the votes below which people disagree on an image."""

CORRUPTIONS = ("gaussian_noise", "gaussian_blur", "contrast")
SEVERITIES = (1, 3, 5)
CORRUPTED = 2000
"""Number of images that are corrupted, evenly spaced."""


def extract(images: Path, out: Path, *options: str) -> Path:
    """Features of the built-in encoder."""
    if not (out / "errors.parquet").exists():
        run_difficulty("extract", images, "--backbone", "builtin", *options, "--out", out)
    return out


def train_heads(train: Path, test: Path, seeds: int, folder: Path) -> None:
    """Trains a classifier and a head with every seed."""
    for seed in range(seeds):
        run = folder / f"seed-{seed}"
        if not (run / "head.safetensors").exists():
            run_difficulty(
                *("train", "uncertainty", "--set", f"data.train={train}"),
                *("--set", f"data.test={test}", "--seed", seed, "--out", folder),
                *(("--resume",) if run.exists() else ()),
            )


def uncertainties_of(head: Path, features: Path, out: Path) -> Tensor:
    """What a head says of features, in their order."""
    if not out.exists():
        run_difficulty("uncertainty", head, features, "--out", out, "--no-r-auroc")
    return torch.from_numpy(read_uncertainties(out).table["uncertainty"].to_numpy().copy())


def entropy_of_classifier(head: Path, features: Tensor) -> Tensor:
    """Entropy of the predictions of the classifier that a head was trained with."""
    model = read_model(head).model.eval()
    with torch.inference_mode():
        probabilities = model(features).softmax(1)
    return torch.special.entr(probabilities).sum(1)


def rmd_of(features: Path, cached: CachedFeatures) -> Tensor:
    """RMD of the product by default, in the order of the features."""
    out = features.with_suffix(".scores.parquet")
    if not out.exists():
        run_difficulty("score", features, "--out", out)
    table = read_scores(out, ("sample_id", "rmd")).table
    value_of = dict(zip(table["sample_id"].to_pylist(), table["rmd"].to_pylist(), strict=True))
    return torch.tensor([value_of[each] for each in cached.sample_ids])


def votes(cached: CachedFeatures) -> tuple[np.ndarray, np.ndarray]:
    """Entropy of people's votes on the test images of CIFAR-10, and whether they disagree.

    In the order of the features.
    """
    table = pq.read_table(shared_folder() / "data" / TESTS[PEOPLE][0])
    counts = np.array(table["human_counts"].to_pylist(), float)
    agreed = counts.max(axis=1) / counts.sum(axis=1)
    found = zip(entropy(counts, axis=1), agreed < AGREEMENT, strict=True)
    value_of = dict(zip(map(str, table["index"].to_pylist()), found, strict=True))
    entropies, disagree = zip(*(value_of[each] for each in cached.sample_ids), strict=True)
    return np.array(entropies), np.array(disagree)


def print_interventions(head: Path, folder: Path) -> None:
    """Prints the share of images whose uncertainty rises with a corruption."""
    images = folder / "images.parquet"
    if not images.exists():
        table = pq.read_table(shared_folder() / "data" / TESTS[PEOPLE][0])
        rows = np.linspace(0, table.num_rows - 1, CORRUPTED).round().astype(int)
        images.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.take(rows).select(["index", "image", "label"]), images)

    def uncertainties(name: str, *options: str) -> dict[str, float]:
        store = extract(images, folder / name, *TESTS[PEOPLE][1], *options)
        out = folder / f"{name}.parquet"
        values = uncertainties_of(head, store, out)
        ids = read_uncertainties(out).table["sample_id"].to_pylist()
        return dict(zip(ids, values.tolist(), strict=True))

    clean = uncertainties("clean")
    print(f"\n| more uncertain than clean | {' | '.join(map(str, SEVERITIES))} |")
    print("| --- |" + " --- |" * len(SEVERITIES))
    for corruption in CORRUPTIONS:
        cells = []
        for severity in SEVERITIES:
            options = ("--corrupt", f"{corruption}:{severity}")
            values = uncertainties(f"{corruption}-{severity}", *options)
            cells.append(f"{np.mean([values[each] > clean[each] for each in clean]):.1%}")
        print(f"| {corruption.replace('_', ' ')} | {' | '.join(cells)} |")


def main() -> None:
    """Makes what is missing, then prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--train", default=TRAINING, help="tables of the training images")
    parser.add_argument("--folder", type=Path, default=Path("runs/zero-shot"))
    arguments = parser.parse_args()
    folder, seeds, data = arguments.folder, arguments.seeds, shared_folder() / "data"
    if not (data / TESTS[PEOPLE][0]).exists():
        sys.exit(skipped("CIFAR-10"))
    columns = ("--label-column", "label", "--augment-runs", str(RUNS))
    train = extract(data / arguments.train, folder / "train", *columns)
    stores = {
        name: extract(data / table, folder / name.lower().replace(" ", "-"), *options)
        for name, (table, options) in TESTS.items()
    }
    train_heads(train, stores["CIFAR-100"], seeds, folder / "heads")
    names = [*(f"head, seed {seed}" for seed in range(seeds)), "entropy, seed 0", "RMD"]
    print(f"| R-AUROC | nearest neighbour is right | {' | '.join(names)} |")
    print("| --- | --- |" + " --- |" * len(names))
    people = ""
    for name, store in stores.items():
        cached, _ = read_cached_features(str(store))
        features = cached.features[:, 0]
        scores = [
            uncertainties_of(
                folder / "heads" / f"seed-{seed}", store, store.with_suffix(f".{seed}.parquet")
            )
            for seed in range(seeds)
        ]
        scores += [entropy_of_classifier(folder / "heads/seed-0", features), rmd_of(store, cached)]
        found = [evaluate_retrieval(each, features, cached.labels) for each in scores]
        cells = " | ".join(f"{each.r_auroc:.3f}" for each in found)
        print(f"| {name} | {found[0].recall_at_1:.1%} | {cells} |")
        if name == PEOPLE:
            (known, disagree), rmd = votes(cached), scores[-1]
            for label, each in zip(names, scores, strict=True):
                people += (
                    f"| {label} | {spearmanr(each, rmd).statistic:.3f} "
                    f"| {spearmanr(each, known).statistic:.3f} "
                    f"| {roc_auc_score(disagree, each):.3f} |\n"
                )
            people += f"\n{disagree.sum()} images, on which people disagree, are the positives."
    headings = f"{PEOPLE}: Spearman with | RMD | entropy of votes | AUROC of disagreement"
    print(f"\n| {headings} |\n| --- | --- | --- | --- |\n{people}")
    print_interventions(folder / "heads/seed-0", folder / "corrupted")


if __name__ == "__main__":
    main()
