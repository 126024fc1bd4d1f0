"""How much of an image the encoder of photographs should see, by the wrong labels that are found.

    python -m benchmarks.photo_crops [--folder runs/photo-crops] [--draws 20]

Prints the AUROC of `rmd` with the whole of the shorter side of each image, with the 89 % of it that
timm keeps for this network, and the difference with its 95 % interval: over draws of 40 photographs
of a folder that get another class, over draws of one in ten labels of Tiny ImageNet, and for the
labels that people gave to CIFAR-10N, over draws of 1,000 of 2,000 images. The last line has the
draws of the photographs with an AUROC below .96. Needs the real data in DIFFICULTY_SHARED.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import difficulty_service as ds
from benchmarks.evidence import data
from benchmarks.evidence.data import Study, require_data
from benchmarks.evidence.encoders import (
    PHOTOS,
    moved_photographs,
    place_of,
    read_photographs,
)
from benchmarks.evidence.label_sets import LabelSet, label_samples
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.backbones import builtin_photos, load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.datasets import open_dataset
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.store import open_store
from difficulty_service.scoring.pipeline import execute

ENCODER = "builtin-photos"
SHORTER_SIDES = {"whole": 260, "89 %": 292}
"""What the shorter side is resized to before the crop of 260 pixels."""

IMAGES = 2_000
MOVED = 40
PLANTED = 0.1
FEWEST = 5
GOAL = 0.96

Draw = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.bool_]]
"""Places of images, the labels they get, and which of these are wrong."""


@dataclass(frozen=True)
class Set:
    """Images of which wrong labels are drawn.

    Attributes:
        features: Those of each share of the shorter side. Shape (samples, dim) each.
        draw: Function from a generator to a draw.
    """

    name: str
    features: dict[str, NDArray[np.float32]]
    draw: Callable[[np.random.Generator], Draw]


def load(side: int, name: str, options: BackboneOptions) -> Backbone:
    """The encoder, with images resized to another length of the shorter side."""
    with patch.object(
        builtin_photos, "PREPROCESSING", replace(builtin_photos.PREPROCESSING, resize=side)
    ):
        return load_backbone(name, options)


def extract(study: Study, source: str, share: str) -> None:
    """Extracts the features that are missing."""
    location, reading = place_of(study, source)
    plan = Plan(location, study.store(source, share), ENCODER, reading)
    print(f"features of {source}, {share}", flush=True)
    dataset = open_dataset(location, reading)
    execute(plan, dataset=dataset, load=partial(load, SHORTER_SIDES[share]))


def photographs_as_they_were(study: Study) -> Set:
    """The photographs of the folder with the classes that they had before some were moved."""
    true, features = moved_photographs(study), {}
    for share in SHORTER_SIDES:
        extract(study, PHOTOS, share)
        ids, rows, given = read_photographs(study.store(PHOTOS, share))
        features[share] = rows.numpy()
    names = list(open_store(study.store(PHOTOS, share)).description.class_names)
    labels = np.array(
        [
            names.index(true.get(sample_id, names[label]))
            for sample_id, label in zip(ids, given.tolist(), strict=True)
        ]
    )
    return Set("photographs, 40 moved", features, partial(planted, labels, MOVED))


def planted(labels: NDArray[np.int64], number: int, generator: np.random.Generator) -> Draw:
    """Another class, each as likely, for so many of the images; none of a few images only."""
    classes = np.flatnonzero(np.bincount(labels) >= FEWEST)
    given, wrong = labels.copy(), np.zeros(len(labels), bool)
    usable = np.flatnonzero(np.isin(labels, classes))
    chosen = generator.choice(usable, number, replace=False)
    steps = generator.integers(1, len(classes), number)
    places = np.searchsorted(classes, labels[chosen])
    given[chosen] = classes[(places + steps) % len(classes)]
    wrong[chosen] = True
    return np.arange(len(labels)), given, wrong


def by_people(
    given: NDArray[np.int64], wrong: NDArray[np.bool_], generator: np.random.Generator
) -> Draw:
    """The labels of people for half of the images."""
    places = generator.choice(len(given), len(given) // 2, replace=False)
    return places, given[places], wrong[places]


def sets(study: Study) -> Iterator[Set]:
    """The images, with features that are extracted where they are missing."""
    yield photographs_as_they_were(study)
    for source in ("tiny-imagenet", "cifar10-train"):
        for share in SHORTER_SIDES:
            extract(study, source, share)
        images = {share: data.read_images(study, source, share) for share in SHORTER_SIDES}
        features = {share: each.features for share, each in images.items()}
        known = images["whole"]
        if source == "tiny-imagenet":
            number = int(PLANTED * len(known.labels))
            draw = partial(planted, known.labels, number)
            yield Set("Tiny ImageNet, symmetric 10 %", features, draw)
            continue
        for kind in ("aggre", "worst"):
            samples, targets = label_samples(study, known, LabelSet(source, kind))
            draw = partial(by_people, samples.labels, targets.wrong)
            yield Set(f"CIFAR-10N, {kind}", features, draw)


def compare(images: Set, draws: int) -> NDArray[np.float64]:
    """AUROC of `rmd` of each draw, for each share of the shorter side. Shape (draws, shares)."""
    found = []
    for seed in range(draws):
        places, given, wrong = images.draw(np.random.default_rng(seed))
        scores = [
            ds.score(each[places], given, scorers=("rmd",)).rmd for each in images.features.values()
        ]
        known = np.isfinite(scores[0])  # not where an image is alone in its class
        found.append([roc_auc_score(wrong[known], each[known]) for each in scores])
    return np.array(found)


def main() -> None:
    """Extracts what is missing and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/photo-crops"))
    parser.add_argument("--draws", type=int, default=20, help="draws of the labels of each set")
    arguments = parser.parse_args()
    shared = shared_folder()
    study = Study(arguments.folder, shared, IMAGES)
    require_data(study)
    warnings.simplefilter("ignore")  # few images
    print(machine())
    print("| labels | whole | 89 % | difference |")
    for images in sets(study):
        found = compare(images, arguments.draws)
        whole, cropped = found.mean(axis=0)
        more = found[:, 0] - found[:, 1]
        error = 1.96 * more.std(ddof=1) / len(more) ** 0.5
        print(
            f"| {images.name} | {whole:.4f} | {cropped:.4f} | {more.mean():+.4f} ± {error:.4f} |",
            flush=True,
        )
        if images.name.startswith("photographs"):
            below = (found < GOAL).sum(axis=0)
            print(f"below {GOAL}: {below[0]} and {below[1]} of {len(found)} draws", flush=True)


if __name__ == "__main__":
    main()
