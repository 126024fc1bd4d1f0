"""Detection of OOD samples; larger scores are more likely OOD."""

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.ood import OOD_SCORES, detection_by_score, ood_detection, ood_score

Batches = dict[str, tuple[Tensor, Tensor]]
Values = dict[str, dict[str, float]]
NAMES = ["gauss", "ties", "large", "tiny", "unit", "perfect", "inverted", "constant", "small"]


@pytest.mark.parametrize("name", NAMES)
def test_detection_is_that_of_the_references(
    golden_ood_scores: Batches, golden_ood: Values, name: str
) -> None:
    expected = golden_ood[name]

    detection = detection_by_score(*golden_ood_scores[name])

    assert detection.auroc == pytest.approx(expected["auroc_sk"], abs=1e-12)
    assert detection.aupr_ood == pytest.approx(expected["ap_oodpos_sk"], abs=1e-12)
    assert detection.aupr_id == pytest.approx(expected["ap_idpos_sk"], abs=1e-12)
    for key in ("fpr95_oodpos_formula", "fpr95_openood", "fpr95_pood040"):
        assert detection.fpr_at_95_tpr == pytest.approx(expected[key], abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_rate_at_which_id_samples_are_kept_is_that_of_a_naive_version(
    golden_ood_scores: Batches, name: str
) -> None:
    scores, is_ood = (each.double().tolist() for each in golden_ood_scores[name])
    known = [score for score, ood in zip(scores, is_ood, strict=True) if not ood]
    other = [score for score, ood in zip(scores, is_ood, strict=True) if ood]

    detection = detection_by_score(*golden_ood_scores[name])

    threshold = min(each for each in known if sum(k <= each for k in known) >= 0.95 * len(known))
    assert detection.fpr_at_95_tpr_id == sum(each <= threshold for each in other) / len(other)


@pytest.mark.parametrize("by", OOD_SCORES)
def test_flat_logits_look_more_ood_than_peaked_ones(by: str) -> None:
    peaked, flat = 10 * torch.eye(4), torch.eye(4)[:2]

    detection = ood_detection(peaked, flat, by)

    assert (detection.auroc, detection.aupr_ood, detection.aupr_id) == (1, 1, 1)
    assert detection.fpr_at_95_tpr == 0
    assert ood_score(flat, by).min() > ood_score(peaked, by).max()


def test_the_largest_logit_is_read_before_softmax() -> None:
    logits = torch.tensor([[1.0, 2.0], [101.0, 102.0]])

    assert ood_score(logits, "max_logit").tolist() == [-2, -102]
    assert ood_score(logits, "msp").unique().numel() == 1


def test_the_energy_is_minus_the_log_sum_of_exponentials_of_any_size() -> None:
    logits = torch.tensor([[1.0, 2.0], [900.0, 902.0], [-900.0, float("-inf")]])

    energy = ood_score(logits, "energy")

    torch.testing.assert_close(energy, -torch.logsumexp(logits.double(), dim=1))


def test_confidences_that_differ_by_the_order_of_the_classes_are_ties() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 10, generator=generator)
    shuffled = torch.stack([row[torch.randperm(10, generator=generator)] for row in logits])

    detection = ood_detection(logits, shuffled, "msp")

    assert (detection.auroc, detection.aupr_ood, detection.aupr_id) == (0.5, 0.5, 0.5)


def test_samples_of_both_kinds_are_ties_where_their_confidence_is_1_but_for_rounding() -> None:
    sure = torch.tensor([[0.0, 35.0], [0.0, 34.5], [0.0, 34.2]], dtype=torch.float64)
    surest = torch.tensor([[0.0, 100.0], [0.0, 90.0]], dtype=torch.float64)

    detection = ood_detection(sure, surest, "msp")

    assert detection.auroc == 0.5


def test_unknown_scores_are_named() -> None:
    with pytest.raises(MetricError, match="'odin' is unknown; give one of msp, entropy"):
        ood_score(torch.zeros(1, 2), "odin")


def test_samples_of_one_kind_alone_are_refused() -> None:
    with pytest.raises(MetricError, match="0 of 3"):
        detection_by_score(torch.arange(3), torch.zeros(3))
