"""The label sets of the study: labels that people gave, and labels that are wrong on purpose."""

import io
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from benchmarks.evidence.data import Images, Study, read_columns
from benchmarks.evidence.measures import entropy_of_counts
from benchmarks.evidence.noise import NOISE, Truth, pixels_of
from benchmarks.evidence.samples import Samples

OFFICIAL = "official"
PEOPLE = ("aggre", "worst", "rand1", "rand2", "rand3")
RATES = (0.02, 0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True)
class LabelSet:
    """Labels of some images.

    Attributes:
        source: Name of the images.
        kind: `official`, a set of CIFAR-10N, or a way to plant noise.
        rate: Share of wrong labels that is planted; 0 where none is.
    """

    source: str
    kind: str
    rate: float = 0.0

    @property
    def name(self) -> str:
        """Name of a file of its results."""
        return f"{self.source}/{self.kind}" + (f"-{self.rate:g}" if self.rate else "")


TRAINING_SETS = [LabelSet("cifar10-train", kind) for kind in PEOPLE]
TEST_SET = LabelSet("cifar10-test", OFFICIAL)
PLANTED_SETS = [
    LabelSet(source, kind, rate)
    for source in ("cifar100-test", "tiny-imagenet")
    for kind in NOISE
    for rate in RATES
]


@dataclass(frozen=True)
class Targets:
    """What is known about the samples.

    Attributes:
        wrong: Whether the given label is known to be wrong. Shape (samples,).
        disagreement: Entropy of people's votes in nats; None where nobody voted. Shape (samples,).
    """

    wrong: NDArray[np.bool_]
    disagreement: NDArray[np.float64] | None = None


def label_samples(study: Study, images: Images, labels: LabelSet) -> tuple[Samples, Targets]:
    """Images with the labels of a set, and what is known about them."""
    classes = int(images.labels.max()) + 1
    if labels.kind == OFFICIAL:
        targets = _people_on_test_images(study, images)
        return Samples(images.features, images.labels, classes), targets
    if labels.kind in NOISE:
        random = np.random.default_rng(zlib.crc32(labels.name.encode()))
        given = NOISE[labels.kind](_truth(study, images, labels), labels.rate, random)
    else:
        column = f"noisy_{labels.kind}"
        table = read_columns(study, labels.source, [column])
        given = table[column].to_numpy().astype(np.int64)[images.positions]
    return Samples(images.features, given, classes), Targets(given != images.labels)


def _people_on_test_images(study: Study, images: Images) -> Targets:
    table = read_columns(study, "cifar10-test", ["human_counts"])
    counts = np.stack(table["human_counts"].to_numpy(zero_copy_only=False)).astype(np.int64)
    checked = pq.read_table(study.shared / "data/label_errors_mturk.parquet")
    verified = checked.filter((pc.field("dataset") == "cifar10") & pc.field("verified_error"))
    wrong = np.isin(images.positions, verified["test_index"].to_numpy())
    return Targets(wrong, entropy_of_counts(counts[images.positions]))


def _truth(study: Study, images: Images, labels: LabelSet) -> Truth:
    classes = int(images.labels.max()) + 1
    successor = (np.arange(classes) + 1) % classes
    if labels.source == "cifar100-test":
        successor = _next_of_superclass(study, labels.source, classes)
    if labels.kind != "instance-dependent":
        return Truth(images.labels, successor, np.empty((len(images.labels), 0)))
    encoded = read_columns(study, labels.source, ["image"])["image"].take(images.positions)
    opened: list[Image.Image] = [Image.open(io.BytesIO(each)) for each in encoded.to_pylist()]
    return Truth(images.labels, successor, pixels_of(opened))


def _next_of_superclass(study: Study, source: str, classes: int) -> NDArray[np.int64]:
    """The class after each one among the five of its superclass, in a circle."""
    table = read_columns(study, source, ["label", "coarse_label"])
    superclass = dict(
        zip(table["label"].to_pylist(), table["coarse_label"].to_pylist(), strict=True)
    )
    successor = np.empty(classes, dtype=np.int64)
    for label in range(classes):
        members = [each for each in range(classes) if superclass[each] == superclass[label]]
        successor[label] = members[(members.index(label) + 1) % len(members)]
    return successor
