"""Windows on objects rank before those beside them."""

import torch
from sklearn.metrics import roc_auc_score

from difficulty_service.analyses.missing_boxes.odds import object_odds


def test_missing_objects_rank_first_with_their_class() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 6 * torch.eye(12)[:4]  # three classes and the background
    labels = torch.arange(3).repeat_interleave(60)
    boxes = centres[labels] + torch.randn(180, 12, generator=generator)
    right = torch.full((400,), 3)
    right[:15] = torch.arange(15) % 3
    windows = centres[right] + torch.randn(400, 12, generator=generator)

    odds = object_odds(boxes, labels, windows)

    assert roc_auc_score(right < 3, odds.log_odds) > 0.99
    assert odds.labels[:15].tolist() == right[:15].tolist()


def test_classes_without_boxes_are_never_suggested() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([1, 4]).repeat_interleave(40)
    boxes = torch.randn(80, 6, generator=generator) + 5 * torch.eye(6)[labels]
    windows = torch.randn(200, 6, generator=generator)

    odds = object_odds(boxes, labels, windows)

    assert set(odds.labels.tolist()) <= {1, 4}
    assert odds.log_odds.shape == (200,)
