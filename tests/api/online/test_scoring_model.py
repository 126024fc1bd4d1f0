"""Single vectors get the scores that a job gives its samples."""

import numpy as np
import pytest
import torch
from torch import Tensor

from api.online.scorer import ScoringModel
from difficulty_service.gaussians.fitting import fit
from difficulty_service.scorers.mahalanobis import relative_mahalanobis

NUM_CLASSES = 3
NAMES = ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % NUM_CLASSES
    centres = 3 * torch.randn(NUM_CLASSES, 5, generator=generator)
    return centres[labels] + torch.randn(300, 5, generator=generator), labels


@pytest.fixture(scope="module")
def model(samples: tuple[Tensor, Tensor]) -> ScoringModel:
    scorer = relative_mahalanobis(fit(*samples, num_classes=NUM_CLASSES))
    training_scores = np.sort(scorer.distances(*samples).rmd.numpy())
    return ScoringModel(scorer, {}, training_scores)


def test_labelled_vectors_get_the_distances_of_the_scorer(
    model: ScoringModel, samples: tuple[Tensor, Tensor]
) -> None:
    features, labels = samples
    expected = model.scorer.distances(features, labels)

    rows = model.score(features, labels).rows(NAMES)

    for name in ("md", "md_agnostic", "rmd", "label_margin"):
        assert [row[name] for row in rows] == getattr(expected, name).tolist()
    assert [row["label"]["index"] for row in rows] == labels.tolist()
    assert rows[1]["label"] == {"index": 1, "name": "bee"}


def test_without_a_label_the_nearest_class_stands_in(
    model: ScoringModel, samples: tuple[Tensor, Tensor]
) -> None:
    features = samples[0][:20]
    nearest = model.scorer.distances(features, torch.zeros(20, dtype=torch.int64)).nearest_label
    expected = model.scorer.distances(features, nearest)

    rows = model.score(features, torch.full((20,), -1)).rows(NAMES)

    assert [row["rmd"] for row in rows] == expected.rmd.tolist()
    assert [row["nearest_label"]["index"] for row in rows] == nearest.tolist()
    assert all(row["label"] is None and row["label_margin"] is None for row in rows)


def test_the_percentile_is_the_share_of_training_samples_that_are_easier(
    model: ScoringModel, samples: tuple[Tensor, Tensor]
) -> None:
    features, labels = samples
    scores = model.scorer.distances(features, labels).rmd

    rows = model.score(features, labels).rows(NAMES)

    easier = (scores[None, :] < scores[:, None]).double().mean(dim=1)
    equal = (scores[None, :] == scores[:, None]).double().mean(dim=1)
    found = torch.tensor([row["percentile"] for row in rows], dtype=torch.float64)
    torch.testing.assert_close(found, easier + equal / 2)


def test_a_class_that_was_not_fitted_has_no_numbers_rather_than_wrong_ones(
    samples: tuple[Tensor, Tensor],
) -> None:
    features, labels = samples
    scorer = relative_mahalanobis(fit(features, labels, num_classes=NUM_CLASSES + 1))
    model = ScoringModel(scorer, {}, np.zeros(0))

    row = model.score(features[:1], torch.tensor([3])).rows((*NAMES, "dog"))[0]

    assert (row["md"], row["rmd"], row["percentile"]) == (None, None, None)
    assert row["md_agnostic"] is not None
