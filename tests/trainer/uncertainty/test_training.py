"""Training of a head: what it learns from, what it leaves alone, and what it does not depend on."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from difficulty_service.base.errors import TrainingError
from trainer.config import Head, RankingHead, SquaredHead
from trainer.training.loop import TrainingCallbacks
from trainer.uncertainty.training import (
    HeadSamples,
    HeadState,
    classify,
    make_head_state,
    predict_uncertainties,
    train_head,
)

NUM_SAMPLES, RUNS, DIM, CLASSES = 101, 2, 6, 3
SHARED: dict[str, Any] = {
    "epochs": 4,
    "hidden": (16,),
    "batch_size": 10,
    "learning_rate": 0.01,
}
CONFIG = RankingHead(**SHARED)
QUIET = TrainingCallbacks(lambda _: None, lambda _: None, lambda: None, lambda: False)


def make_classifier() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(DIM, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def make_samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(NUM_SAMPLES, RUNS, DIM, generator=generator)
    return features, torch.randint(0, CLASSES, (NUM_SAMPLES,), generator=generator)


def make_targets() -> HeadSamples:
    """Samples whose loss is a function of their first two features."""
    features, _ = make_samples()
    losses = 3 * (features[..., 0] - features[..., 1]).sigmoid()
    return HeadSamples(features, losses, losses < 1)


def trained(
    samples: HeadSamples, config: Head = CONFIG, callbacks: TrainingCallbacks = QUIET
) -> HeadState:
    state = make_head_state(config, 0, samples.features)
    train_head(state, samples, samples, config, 0, callbacks)
    return state


def parameters_of(state: HeadState) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in state.head.parameters()]


def test_the_losses_are_those_of_the_classifier_for_every_run() -> None:
    classifier, (features, labels) = make_classifier(), make_samples()

    samples = classify(classifier, features, labels)

    for row in range(NUM_SAMPLES):
        for run in range(RUNS):
            logits = classifier(features[row, run])
            loss = F.cross_entropy(logits, labels[row])
            torch.testing.assert_close(samples.losses[row, run], loss.detach())
            assert samples.correct[row, run] == (logits.argmax() == labels[row])


def test_the_classifier_and_the_features_stay_as_they_are() -> None:
    classifier, (features, labels) = make_classifier(), make_samples()
    features.requires_grad_()
    before = [parameter.clone() for parameter in classifier.parameters()]

    trained(classify(classifier, features, labels))

    assert features.grad is None
    assert all(parameter.grad is None for parameter in classifier.parameters())
    assert all(map(torch.equal, classifier.parameters(), before))


def test_a_head_learns_to_order_samples_by_their_loss() -> None:
    samples, config = make_targets(), RankingHead(**SHARED | {"epochs": 60})

    history = trained(samples, config).progress.history

    assert history[-1]["validation_auroc_correct"] > 0.95
    assert history[-1]["validation_loss"] < history[0]["validation_loss"] / 2


def test_a_head_of_the_squared_objective_learns_the_value_of_the_loss() -> None:
    samples, config = make_targets(), SquaredHead(**SHARED | {"epochs": 60})

    head = trained(samples, config).head

    error = (predict_uncertainties(head, samples.features[:, :1]) - samples.losses[:, 0]).square()
    assert error.mean() < 0.1 * samples.losses[:, 0].var()


@pytest.mark.parametrize(("kind", "is_same"), [(RankingHead, True), (SquaredHead, False)])
def test_only_a_ranking_head_ignores_the_unit_of_the_losses(
    kind: type[RankingHead | SquaredHead], is_same: object
) -> None:
    samples = make_targets()
    config = kind(**SHARED)

    head, other = (
        trained(replace(samples, losses=factor * samples.losses), config) for factor in (1, 1024)
    )

    assert (parameters_of(head) == parameters_of(other)) is is_same


def test_epochs_use_the_augmentation_runs_in_turn() -> None:
    samples = make_targets()
    reversed_runs = replace(samples, losses=samples.losses.clone())
    reversed_runs.losses[:, 1] *= -1
    is_same = []

    for epochs in (1, 2):
        config = RankingHead(**SHARED | {"epochs": epochs})
        one, other = (parameters_of(trained(each, config)) for each in (samples, reversed_runs))
        is_same.append(one == other)

    assert is_same == [True, False], "the first epoch uses the first run"


def test_the_uncertainty_of_a_sample_is_the_mean_over_its_runs() -> None:
    samples = make_targets()
    head = trained(samples).head

    uncertainties = predict_uncertainties(head, samples.features)

    expected = (head(samples.features[:, 0]) + head(samples.features[:, 1])) / 2
    torch.testing.assert_close(uncertainties, expected.detach())


@pytest.mark.parametrize("batch_size", [2, 3, 50, 101, 1000])
def test_batches_of_any_size_can_be_trained_on(batch_size: int) -> None:
    state = trained(make_targets(), RankingHead(**SHARED | {"epochs": 1, "batch_size": batch_size}))

    assert all(parameter.isfinite().all() for parameter in state.head.parameters())


def test_a_callback_stops_the_training_after_an_epoch() -> None:
    samples, saved = make_targets(), []
    state = make_head_state(CONFIG, 0, samples.features)
    callbacks = TrainingCallbacks(
        lambda _: None, lambda _: None, lambda: saved.append(1), lambda: len(saved) == 2
    )

    finished = train_head(state, samples, None, CONFIG, 0, callbacks)

    assert not finished
    assert state.progress.epoch == 2


def test_a_head_that_diverges_is_an_error() -> None:
    samples, config = make_targets(), SquaredHead(**SHARED | {"learning_rate": 1e30})

    with pytest.raises(
        TrainingError, match=r"no longer finite .*; lower uncertainty\.learning_rate"
    ):
        trained(samples, config)


def test_losses_that_are_not_finite_are_refused() -> None:
    classifier, (features, labels) = make_classifier(), make_samples()
    with torch.no_grad():
        next(classifier.parameters()).fill_(torch.nan)

    with pytest.raises(TrainingError, match="losses of the classifier are not finite"):
        classify(classifier, features, labels)
