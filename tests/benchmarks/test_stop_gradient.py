"""Joint training with and without stop-gradient: what reaches the encoder, and what is reported."""

import pytest
import torch

from benchmarks.studies.stop_gradient import ARMS, Joint, Split, rows


@pytest.mark.parametrize("stops", [True, False])
def test_the_loss_predictor_changes_the_encoder_only_without_stop_gradient(stops: bool) -> None:  # noqa: FBT001 - a parameter of a test
    torch.manual_seed(0)
    model = Joint(6, 3, stops=stops)

    _, _, uncertainties = model(torch.randn(5, 6))
    uncertainties.sum().backward()

    assert all((each.grad is None) == stops for each in model.encoder.parameters())
    assert all(each.grad is not None for each in model.predictor.layers.parameters())


def test_both_arms_have_a_row_for_each_epoch() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    features = 3 * torch.eye(6)[labels] + torch.randn(300, 6, generator=generator)
    training, test = (Split(features[part], labels[part]) for part in (slice(200), slice(200, 300)))

    found = list(rows(training, test, seeds=2, epochs=4))

    expected = [(arm, str(epoch)) for arm in ARMS for epoch in range(1, 5)]
    assert [(row["arm"], row["epoch"]) for row in found] == expected
    assert all(float(row["accuracy"]) > 0.9 for row in found if row["epoch"] == "4")
    assert len({row["r_auroc"] for row in found}) > 1
