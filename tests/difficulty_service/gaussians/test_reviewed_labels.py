"""What the noise of labels is after a person has looked at some of them."""

import pytest
import torch

from difficulty_service.gaussians.label_noise import (
    SHARPNESS_OF_SUMS,
    add_label_sums,
    fit_noise,
    judge_labels,
    log_class_prior,
)
from difficulty_service.gaussians.products import Workspace

CLASSES = 4


@pytest.mark.parametrize("seed", range(5))
def test_looking_at_the_most_doubtful_first_leaves_the_share_where_it_was(seed: int) -> None:
    """Which samples are looked at follows from what the fit sees anyway."""
    generator = torch.Generator().manual_seed(seed)
    samples, share = 2000, 0.1
    right = torch.randint(CLASSES, (samples,), generator=generator)
    log_densities = 2 * torch.randn(samples, CLASSES, generator=generator, dtype=torch.float64)
    log_densities[torch.arange(samples), right] += 4  # the scale of these densities is 1
    flipped = torch.rand(samples, generator=generator) < share
    shift = torch.randint(1, CLASSES, (samples,), generator=generator)
    labels = torch.where(flipped, (right + shift) % CLASSES, right)
    prior = log_class_prior(labels.bincount(minlength=CLASSES))
    sums = torch.zeros(CLASSES, CLASSES, dtype=torch.float64)
    add_label_sums(SHARPNESS_OF_SUMS * log_densities + prior, labels, sums)
    before = fit_noise(log_densities, prior, labels, sums, torch.ones(samples), 1.0)
    assert before is not None
    transitions = before.transitions_of(log_densities, labels, Workspace())
    verdict = judge_labels(before.scale * log_densities + prior, labels, transitions)
    first = verdict.suspicion.argsort(descending=True)[:300]
    verified = torch.full((samples,), -1)
    verified[first] = right[first]

    after = fit_noise(
        log_densities, prior, labels, sums, torch.ones(samples), 1.0, verified=verified
    )

    assert after is not None
    assert after.wrong_low < float(flipped.double().mean()) < after.wrong_high
    assert after.wrong_high - after.wrong_low < before.wrong_high - before.wrong_low
