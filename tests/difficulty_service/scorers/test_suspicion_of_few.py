"""Suspicion where a class has so few images that one wrong label changes its share."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.leave_one_out import compare_left_out
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scorers.suspicion import PosteriorOptions, fit_posteriors


@pytest.mark.slow
def test_among_few_samples_planted_errors_rank_as_high_as_by_the_label_margin() -> None:
    gains = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        right = torch.arange(50) % 10
        features = torch.randn(50, 60, generator=generator, dtype=torch.float64)
        features[torch.arange(50), right] += 4
        wrong = torch.randperm(50, generator=generator) < 3
        labels = torch.where(wrong, (right + 1) % 10, right)
        options = PosteriorOptions(("suspicion",), 10, matmul_dtype=torch.float64)
        posteriors = fit_posteriors(TensorBatches(features, labels), options)
        suspicions = posteriors.columns(features, labels)["suspicion"]
        gaussians = fit(features, labels, 10)
        distances = relative_mahalanobis(gaussians).distances(features, labels)
        _, margin = compare_left_out(gaussians, features, labels, distances.md_agnostic)
        gains.append(roc_auc_score(wrong, suspicions) - roc_auc_score(wrong, margin))

    assert sum(gains) / len(gains) > -0.005
