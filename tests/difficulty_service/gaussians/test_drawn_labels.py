"""Label noise of labels that were drawn with known densities, whose scale is 1."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from difficulty_service.gaussians import label_noise
from difficulty_service.gaussians.label_noise import (
    LOG_SCALES,
    SHARPNESS_OF_SUMS,
    LabelNoise,
    add_label_sums,
    fit_noise,
    judge_labels,
    log_class_prior,
)
from difficulty_service.gaussians.products import Workspace

CLASSES = 4
WRONG = 0.1


@dataclass(frozen=True)
class Drawn:
    """Samples of classes, (samples,), with labels of which a tenth name another class."""

    log_densities: Tensor
    right: Tensor
    labels: Tensor

    @property
    def log_prior(self) -> Tensor:
        return log_class_prior(self.labels.bincount(minlength=CLASSES))

    def fitted(self, verified: Tensor | None = None) -> LabelNoise:
        sums = torch.zeros(CLASSES, CLASSES, dtype=torch.float64)
        joint = SHARPNESS_OF_SUMS * self.log_densities + self.log_prior
        add_label_sums(joint, self.labels, sums)
        noise = fit_noise(
            *(self.log_densities, self.log_prior, self.labels, sums, torch.ones(len(self.labels))),
            scale=1.0,
            verified=verified,
        )
        assert noise is not None
        return noise


def draw(samples: int, seed: int) -> Drawn:
    generator = torch.Generator().manual_seed(seed)
    right = torch.randint(CLASSES, (samples,), generator=generator)
    log_densities = 2 * torch.randn(samples, CLASSES, generator=generator, dtype=torch.float64)
    log_densities[torch.arange(samples), right] += 4
    flipped = torch.rand(samples, generator=generator) < WRONG
    shift = torch.randint(1, CLASSES, (samples,), generator=generator)
    return Drawn(log_densities, right, torch.where(flipped, (right + shift) % CLASSES, right))


@pytest.mark.parametrize("seed", range(5))
def test_looking_at_the_most_doubtful_first_leaves_the_share_where_it_was(seed: int) -> None:
    """Which samples are looked at follows from what the fit sees anyway."""
    drawn = draw(2000, seed)
    before = drawn.fitted()
    transitions = before.transitions_of(drawn.log_densities, drawn.labels, Workspace())
    joint = before.scale * drawn.log_densities + drawn.log_prior
    verdict = judge_labels(joint, drawn.labels, transitions)
    first = verdict.suspicion.argsort(descending=True)[:300]
    verified = torch.full((2000,), -1)
    verified[first] = drawn.right[first]

    after = drawn.fitted(verified)

    flipped = drawn.labels != drawn.right
    assert after.wrong_low < float(flipped.double().mean()) < after.wrong_high
    assert after.wrong_high - after.wrong_low < before.wrong_high - before.wrong_low


def test_a_peak_that_is_lower_than_what_was_tried_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where classes are certain, there is a second peak at which no label is wrong."""
    drawn = draw(600, 0)
    following = torch.where(drawn.labels != drawn.right, (drawn.right + 1) % CLASSES, drawn.right)
    drawn = replace(drawn, labels=following)
    peak = drawn.fitted()
    monkeypatch.setattr(label_noise, "_peak", lambda *_: LOG_SCALES[0])

    found = drawn.fitted()

    tried = [math.exp(each) for each in LOG_SCALES]
    nearest = sorted(tried, key=lambda scale: abs(math.log(scale / peak.scale)))[:2]
    assert any(found.scale == pytest.approx(scale) for scale in nearest)
    assert found.wrong == pytest.approx(peak.wrong, rel=0.05)
    assert found.wrong_low < found.wrong < found.wrong_high
