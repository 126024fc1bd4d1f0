"""A small world: photographs, their features and the score file beside these."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from difficulty_service.pages.stored_images import ImageSource, open_images
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.dataset_files import dataset_of
from tests.factories import CLASSES, score_table, store_of, write_image_folder


@dataclass(frozen=True)
class World:
    """Scores in a file, and their images."""

    path: Path
    scores: ScoreFile
    images: ImageSource

    @property
    def ids(self) -> list[str]:
        ids: list[str] = self.scores.table["sample_id"].to_pylist()
        return ids


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Four photographs of each of three classes; the first cat looks like a dog."""
    folder = tmp_path_factory.mktemp("world")
    photos = write_image_folder(folder / "photos", each=4)
    dataset = dataset_of(photos)
    ids, labels = list(dataset.sample_ids), dataset.labels.tolist()
    noise = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    features = noise + 6 * F.one_hot(torch.tensor(labels), 5)
    store_of(folder / "scores.features", features, torch.tensor(labels), ids, class_names=CLASSES)
    looks_like = [2 if row == 4 else label for row, label in enumerate(labels)]
    others = [(label + 1) % 3 for label in labels]
    table = score_table(
        labels,
        CLASSES,
        ids,
        rmd=[float(row) for row in range(12)],
        nearest_label=looks_like,
        nearest_label_name=[CLASSES[label] for label in looks_like],
        label_margin=[4.0 if row == 4 else -2.0 for row in range(12)],
        percentile=[row / 11 for row in range(12)],
        suspicion=[3.0 if row == 4 else -9.0 for row in range(12)],
        suggested_label=others,
        suggested_label_name=[CLASSES[label] for label in others],
        first_label=looks_like,
    )
    known = {"class_names": CLASSES, "dataset": str(photos), "fingerprint": dataset.fingerprint}
    path = folder / "scores.parquet"
    write_scores(path, table, Provenance.of(known))
    scores = read_scores(path)
    return World(path, scores, open_images(scores.provenance, ids))


def without_labels(scores: ScoreFile) -> ScoreFile:
    """The same scores as of images that have no labels."""
    ids = scores.table["sample_id"].to_pylist()
    distances = [float(row) for row in range(len(ids))]
    table = score_table(
        [0] * len(ids), ("unlabelled",), ids, md_agnostic=distances, percentile=distances
    )
    known = {"class_names": ("unlabelled",), "dataset": scores.provenance.dataset}
    return ScoreFile(table, Provenance.of(known))
