"""The images that the networks of the study are trained on, with their features and scores."""

import io
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.evidence.data import Images, Study, read_columns, read_images
from benchmarks.evidence.label_sets import OFFICIAL, TEST_SET, LabelSet, label_samples
from difficulty_service.base.files import replacing
from difficulty_service.interface.score import score
from difficulty_service.scores.file import read_scores

SOURCE = "cifar10-train"
KINDS = (OFFICIAL, "worst", "aggre")
"""Labels to train on: the official ones, and two sets of CIFAR-10N with 40 % and 9 % wrong."""

MOST_IMAGES = 10_000
HELD_OUT_EVERY = 10
"""One image of this many is held out, for the constants and for temperature scaling."""

TEST = "test"


@dataclass(frozen=True)
class Split:
    """Samples to train or to evaluate a network on.

    Attributes:
        features: Of the built-in encoder, float32. Shape (samples, dim).
        images: uint8. Shape (samples, height, width, 3).
        labels: Shape (samples,).
    """

    features: NDArray[np.float32]
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def select(self, rows: NDArray[np.bool_]) -> "Split":
        """The samples that a mask of shape (samples,) keeps."""
        return Split(self.features[rows], self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Splits:
    """What a network is trained, validated and tested on.

    Attributes:
        train: Training images with the labels of a set.
        validation: Other images with labels of the same set, as wrong as those.
        test: Test images with the official labels.
        scores: Score file of `train` with suspicion; ids are the numbers of its rows.
    """

    train: Split
    validation: Split
    test: Split
    scores: Path

    def without_suspects(self) -> "Splits":
        """Drops the training samples with suspicion above 0; nothing scores what is left."""
        suspicion, _ = self._suspects()
        return replace(self, train=self.train.select(~(suspicion > 0)))

    def relabelled(self) -> "Splits":
        """Gives the training samples with suspicion above 0 the class that they are suspected of.

        As `difficulty clean --relabel 'suspicion > 0'`.
        """
        suspicion, suspected = self._suspects()
        labels = np.where(suspicion > 0, suspected, self.train.labels)
        return replace(self, train=replace(self.train, labels=labels))

    def _suspects(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Suspicion, NaN where there is none, and the suspected class, of shape (samples,) each."""
        table = read_scores(self.scores, ["sample_id", "suspicion", "suggested_label_name"]).table
        order = np.argsort(table["sample_id"].to_numpy().astype(np.int64))
        names = table["suggested_label_name"].to_pylist()
        suspected = np.array([-1 if name is None else int(name) for name in names])
        return table["suspicion"].to_numpy().astype(np.float64)[order], suspected[order]


def scores_file(study: Study, kind: str) -> Path:
    """The score file of the training images with the labels of a set."""
    return study.folder / "training" / f"{kind}.parquet"


def prepare_splits(study: Study) -> None:
    """Decodes the images and scores the labels of every set, where that has not been done."""
    file = _arrays_file(study)
    if not file.exists():
        images, test = (read_images(study, each, "builtin") for each in (SOURCE, TEST_SET.source))
        count = min(len(images.labels), MOST_IMAGES)
        chosen = np.linspace(0, len(images.labels) - 1, count).round().astype(np.int64)
        images = Images(images.features[chosen], images.labels[chosen], images.positions[chosen])
        given = {kind: label_samples(study, images, LabelSet(SOURCE, kind)) for kind in KINDS[1:]}
        arrays = {
            OFFICIAL: images.labels,
            **{kind: samples.labels for kind, (samples, _) in given.items()},
            "features": images.features,
            "images": _pixels(study, SOURCE, images),
            f"{TEST}-labels": test.labels,
            f"{TEST}-features": test.features,
            f"{TEST}-images": _pixels(study, TEST_SET.source, test),
        }
        with replacing(file) as temporary, temporary.open("wb") as out:
            np.savez(out, **arrays)  # type: ignore[arg-type] # of names that are no parameters
    for kind in KINDS:
        if not scores_file(study, kind).exists():
            train = read_splits(study, kind).train
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # what a reader of a file should know
                scores = score(train.features, train.labels, scorers=("suspicion",))
            scores.save(scores_file(study, kind))


def read_splits(study: Study, kind: str) -> Splits:
    """The samples with the labels of a set, which `prepare_splits` has prepared."""
    with np.load(_arrays_file(study)) as arrays:
        everything = Split(arrays["features"], arrays["images"], arrays[kind])
        test = Split(*(arrays[f"{TEST}-{name}"] for name in ("features", "images", "labels")))
    held_out = np.arange(len(everything.labels)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    return Splits(
        everything.select(~held_out),
        everything.select(held_out),
        test,
        scores_file(study, kind),
    )


def _arrays_file(study: Study) -> Path:
    return study.folder / "training" / "splits.npz"


def _pixels(study: Study, source: str, images: Images) -> NDArray[np.uint8]:
    """Decoded images, of shape (samples, height, width, 3)."""
    encoded = read_columns(study, source, ["image"])["image"].take(images.positions)
    return np.stack([np.asarray(Image.open(io.BytesIO(each))) for each in encoded.to_pylist()])
