"""Risk-coverage curves show the errors among the samples that a classifier is certain of."""

from pathlib import Path

import numpy as np
import pytest
import torch

from difficulty_service.base.errors import MetricError
from trainer.reports.diagrams import (
    COLOURS,
    COVERAGES,
    LINE_STYLES,
    draw_risk_coverage,
    line_of,
    risk_curve,
)


def test_the_curve_is_the_error_rate_of_the_most_certain_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    targets = torch.randint(3, (400,), generator=generator)

    risks = risk_curve(logits, targets)

    order = logits.softmax(-1).amax(-1).argsort(descending=True)
    wrong = (logits.argmax(-1) != targets)[order].double().numpy()
    naive = [wrong[: round(400 * coverage)].mean() for coverage in COVERAGES]
    assert risks == pytest.approx(np.array(naive))


def test_all_runs_are_in_one_picture_with_their_aurc(tmp_path: Path) -> None:
    logits = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
    right, wrong = torch.tensor([0, 0, 0, 1]), torch.tensor([1, 0, 0, 0])

    draw_risk_coverage(
        {"one": [(logits, right)], "a $ b": [(logits, right), (logits, wrong)]},
        tmp_path / "curves.svg",
    )

    words = (tmp_path / "curves.svg").read_text()
    assert "one: AURC 62.5 (x 1000)" in words
    # The second seed errs on its most certain sample: 1, 1/2, 1/3, 1/4.
    assert "a $ b: AURC 291.7 ± 324.1 (x 1000)" in words


def test_many_runs_have_lines_of_their_own() -> None:
    lines = [tuple(line_of(number).values()) for number in range(len(COLOURS) * len(LINE_STYLES))]

    assert len(set(lines)) == len(lines)


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="0 classifiers"):
        draw_risk_coverage({}, tmp_path / "curves.png")
