"""The scale at which labels are likeliest, where the search between two scales goes wrong."""

import math

import pytest
import torch

from difficulty_service.gaussians import label_noise
from difficulty_service.gaussians.label_noise import (
    LOG_SCALES,
    SHARPNESS_OF_SUMS,
    LabelNoise,
    add_label_sums,
    fit_noise,
    log_class_prior,
)

SAMPLES, CLASSES = 600, 4


def fitted() -> LabelNoise:
    """A tenth of the labels are wrong; the scale of the densities is 1."""
    generator = torch.Generator().manual_seed(0)
    right = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    log_densities = 2 * torch.randn(SAMPLES, CLASSES, generator=generator, dtype=torch.float64)
    log_densities[torch.arange(SAMPLES), right] += 4
    flipped = torch.rand(SAMPLES, generator=generator) < 0.1
    labels = torch.where(flipped, (right + 1) % CLASSES, right)
    prior = log_class_prior(labels.bincount(minlength=CLASSES))
    sums = torch.zeros(CLASSES, CLASSES, dtype=torch.float64)
    add_label_sums(SHARPNESS_OF_SUMS * log_densities + prior, labels, sums)
    noise = fit_noise(log_densities, prior, labels, sums, torch.ones(SAMPLES), 1.0)
    assert noise is not None
    return noise


def test_a_peak_that_is_lower_than_what_was_tried_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where classes are certain, there is a second peak at which no label is wrong."""
    peak = fitted()
    monkeypatch.setattr(label_noise, "_peak", lambda *_: LOG_SCALES[0])

    found = fitted()

    tried = [math.exp(each) for each in LOG_SCALES]
    nearest = sorted(tried, key=lambda scale: abs(math.log(scale / peak.scale)))[:2]
    assert any(found.scale == pytest.approx(scale) for scale in nearest)
    assert found.wrong == pytest.approx(peak.wrong, rel=0.05)
    assert found.wrong_low < found.wrong < found.wrong_high
