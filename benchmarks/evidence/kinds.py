"""Which score finds which kind of hard sample: wrong labels, foreign images, and changed images.

    python -m benchmarks.evidence.kinds [--folder runs/evidence] [--limit N] [--draws 3]

After H-CAT (Seedat et al. 2024, arXiv 2403.04551): a tenth of the test images of CIFAR-10 are made
hard in one way, and each score ranks all of them, by the features of the built-in encoder. Its
"adjacent" labels need classes with an order, which CIFAR-10 has not. Writes `kinds.csv` with the
AUROC of each score and kind, the mean and the range of the draws, which are of other images.

- uniform, asymmetric, instance-dependent: the label is wrong, as in `noise.py`.
- near: another image stands in its place, of CIFAR-100, whose classes are others.
- far: a digit of MNIST does.
- domain: Gaussian noise of severity 3.
- zoom: the middle of the image, enlarged to twice its size.
- shift: the image is moved by twelve pixels, and the rest is black.
"""

import argparse
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import roc_auc_score

from benchmarks.evidence.data import Images, Study, extract, read_columns, read_images, require_data
from benchmarks.evidence.methods import METHODS
from benchmarks.evidence.noise import NOISE, Truth, pixels_of
from benchmarks.evidence.page import DOCS, TABLES
from benchmarks.evidence.samples import Samples
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.images.corruptions import Corruption
from difficulty_service.interface.encoder import Encoder, backbone

SOURCE, BACKBONE, RATE = "cifar10-test", "builtin", 0.1
SEVERITY, MOVED = 3, 12
ASKED = ("rmd", "suspicion", "agree", "kmeans", "knn", "cleanlab", "training")
"""Of the methods, those that score planted noise in little time."""

COLUMNS = ("kind", "score", "auroc", "lowest", "highest", "draws", "samples", "machine")
Pixels = NDArray[np.uint8]


def noisy(pixels: Pixels) -> Pixels:
    """Gaussian noise on an image, (height, width, 3)."""
    changed = Corruption("gaussian_noise", SEVERITY).apply(torch.tensor(pixels).permute(2, 0, 1))
    return changed.permute(1, 2, 0).numpy()


def zoomed(pixels: Pixels) -> Pixels:
    """The middle half of both sides, enlarged to the size of the image, (height, width, 3)."""
    height, width, _ = pixels.shape
    box = (width // 4, height // 4, width - width // 4, height - height // 4)
    return np.asarray(Image.fromarray(pixels).resize((width, height), box=box))


def shifted(pixels: Pixels, random: np.random.Generator) -> Pixels:
    """The image, (height, width, 3), moved to one of four sides, and black where nothing is."""
    axis, step = int(random.integers(2)), MOVED * int(random.choice([-1, 1]))
    moved = np.roll(pixels, step, axis)
    empty = slice(None, step) if step > 0 else slice(step, None)
    moved[empty if axis == 0 else slice(None), empty if axis == 1 else slice(None)] = 0
    return moved


def decoded(encoded: list[bytes]) -> list[Pixels]:
    """Images as arrays of shape (height, width, 3)."""
    return [np.asarray(Image.open(io.BytesIO(each)).convert("RGB")) for each in encoded]


Change = Callable[[NDArray[np.int64], np.random.Generator], list[Pixels]]
"""Images to stand in the place of those at some positions."""


def changes(study: Study) -> dict[str, Change]:
    """The ways to make images hard."""

    def own(chosen: NDArray[np.int64]) -> list[Pixels]:
        return decoded(read_columns(study, SOURCE, ["image"])["image"].take(chosen).to_pylist())

    def foreign(table: str, chosen: NDArray[np.int64], random: np.random.Generator) -> list[Pixels]:
        images = pq.read_table(study.shared / "data" / table, columns=["image"])["image"]
        drawn = random.choice(len(images), len(chosen), replace=False)
        return decoded(images.take(drawn).to_pylist())

    return {
        "near": partial(foreign, "cifar100_test.parquet"),
        "far": partial(foreign, "mnist_ood2000.parquet"),
        "domain": lambda chosen, _: [noisy(each) for each in own(chosen)],
        "zoom": lambda chosen, _: [zoomed(each) for each in own(chosen)],
        "shift": lambda chosen, random: [shifted(each, random) for each in own(chosen)],
    }


def truth_of(study: Study, images: Images) -> Truth:
    """What planted labels may look at; each class is confused with the next one."""
    classes = int(images.labels.max()) + 1
    encoded = read_columns(study, SOURCE, ["image"])["image"].take(images.positions).to_pylist()
    opened: list[Image.Image] = [Image.open(io.BytesIO(each)) for each in encoded]
    return Truth(images.labels, (np.arange(classes) + 1) % classes, pixels_of(opened))


def hard_sets(
    study: Study, images: Images, encoder: Encoder, random: np.random.Generator
) -> Iterator[tuple[str, Samples, NDArray[np.bool_]]]:
    """The samples of each kind, and which of them were made hard. Shape (samples,)."""
    classes = int(images.labels.max()) + 1
    truth = truth_of(study, images)
    names = {"symmetric": "uniform", "class-dependent": "asymmetric"}
    for name, plant in NOISE.items():
        given = plant(truth, RATE, random)
        samples = Samples(images.features, given, classes)
        yield names.get(name, name), samples, given != images.labels
    for name, change in changes(study).items():
        chosen = random.choice(len(images.labels), round(RATE * len(images.labels)), replace=False)
        features = images.features.copy()
        features[chosen] = encoder.encode(change(images.positions[chosen], random))
        hard = np.isin(np.arange(len(images.labels)), chosen)
        yield name, Samples(features, images.labels, classes), hard


def rows(study: Study, draws: int) -> list[Row]:
    """A row for each kind and score."""
    extract(study, SOURCE, BACKBONE)
    images = read_images(study, SOURCE, BACKBONE)
    encoder = backbone(BACKBONE, device="cpu", precision="fp32")
    found: dict[tuple[str, str], list[float]] = {}
    for draw in range(draws):
        sets = hard_sets(study, images, encoder, np.random.default_rng(draw))
        for kind, samples, hard in sets:
            for method in ASKED:
                for score, values in METHODS[method](samples).scores.items():
                    known = ~np.isnan(values)
                    auroc = float(roc_auc_score(hard[known], values[known]))
                    found.setdefault((kind, score), []).append(auroc)
            print(f"draw {draw + 1}: {kind}", flush=True)
    return [
        {
            "kind": kind,
            "score": score,
            "auroc": f"{np.mean(values):.4f}",
            "lowest": f"{min(values):.4f}",
            "highest": f"{max(values):.4f}",
            "draws": str(draws),
            "samples": str(len(images.labels)),
            "machine": machine(),
        }
        for (kind, score), values in found.items()
    ]


def main() -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--limit", type=int, help="number of images, for a trial")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, default=DOCS / TABLES / "kinds.csv")
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder(), arguments.limit)
    require_data(study)
    write_rows(arguments.out, COLUMNS, rows(study, arguments.draws))


if __name__ == "__main__":
    main()
