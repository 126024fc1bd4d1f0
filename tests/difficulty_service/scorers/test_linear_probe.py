"""The logistic probe that leaves each sample out, beside one that is refitted without it."""

import numpy as np
import pytest
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.scorers import linear_probe
from difficulty_service.scorers.linear_probe import (
    PENALTIES,
    fit,
    leave_out,
    logits_left_out,
    standardise,
)

NUM_CLASSES = 4
ALL = torch.arange(120)
START = np.zeros((7, NUM_CLASSES))


@pytest.fixture(scope="module")
def blobs() -> tuple[Tensor, Tensor]:
    """Four classes of 30 samples in 6 dimensions that overlap."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % NUM_CLASSES
    noise = torch.randn(120, 6, generator=generator)
    return 1.5 * torch.eye(6)[labels] + noise, labels


def refit(
    rows: NDArray[np.float64],
    labels: NDArray[np.int64],
    penalty: float,
    start: NDArray[np.float64] = START,
) -> NDArray[np.float64]:
    """Parameters of a logistic regression, whose penalty is beside the sum of the losses."""
    shape = (rows.shape[1], NUM_CLASSES)

    def objective(flat: NDArray[np.float64]) -> float:
        parameters = flat.reshape(shape)
        logits = rows @ parameters
        own = logits[np.arange(len(labels)), labels]
        losses = np.log(np.exp(logits).sum(axis=1)) - own
        return float(losses.sum() + penalty * np.square(parameters[:-1]).sum() / 2)

    def gradient(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        parameters = flat.reshape(shape)
        weights = np.exp(rows @ parameters)
        errors = weights / weights.sum(axis=1, keepdims=True) - np.eye(NUM_CLASSES)[labels]
        changes: NDArray[np.float64] = rows.T @ errors
        changes[:-1] += penalty * parameters[:-1]
        return changes.ravel()

    found = scipy.optimize.minimize(
        objective,
        start.ravel(),
        jac=gradient,
        method="L-BFGS-B",
        options={"gtol": 1e-6, "ftol": 1e-12},
    )
    parameters: NDArray[np.float64] = found.x.reshape(shape)
    return parameters


def centred(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logits with a mean of 0 for each sample, since only their differences count."""
    return logits - logits.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("penalty", PENALTIES[1:4])
def test_each_sample_is_left_out_nearly_as_by_a_fit_without_it(
    blobs: tuple[Tensor, Tensor], penalty: float
) -> None:
    features, labels = blobs
    rows = standardise(features)
    fitted = fit(rows, labels, penalty, START)
    exact = []
    for each in range(len(rows)):
        others = np.delete(np.arange(len(rows)), each)
        without = refit(
            rows[others].double().numpy(), labels[others].numpy(), 120 * penalty, fitted
        )
        exact.append(rows[each].double().numpy() @ without)

    left_out = leave_out(rows, labels, fitted, penalty).double().numpy()

    expected = centred(np.stack(exact))
    error = np.std(centred(left_out) - expected)
    assert error < 0.1
    # The rest is what one step without products of two classes misses.
    assert error < np.std(centred(rows.double().numpy() @ fitted) - expected) / 3


def test_a_sample_leaves_by_a_newton_step_with_the_hessian_of_the_others(
    blobs: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_probe, "WEIGHT_KEPT", 1.0)
    rows, labels = standardise(blobs[0]), blobs[1]
    fitted = fit(rows, labels, 0.01, START)

    left_out = leave_out(rows, labels, fitted, 0.01).numpy()

    inputs = rows.double().numpy()
    logits = inputs @ fitted
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    ridge = np.diag([1.2] * 6 + [1e-6 * len(rows)])
    for sample in range(0, len(rows), 7):
        others = np.arange(len(rows)) != sample
        for number in range(NUM_CLASSES):
            p = probabilities[others, number]
            hessian = (inputs[others].T * (p * (1 - p))) @ inputs[others] + ridge
            error = probabilities[sample, number] - float(labels[sample] == number)
            step = inputs[sample] @ np.linalg.solve(hessian, inputs[sample]) * error
            expected = logits[sample, number] + step
            assert left_out[sample, number] == pytest.approx(expected, abs=1e-3)


def test_the_fit_is_that_of_the_textbook_formula(blobs: tuple[Tensor, Tensor]) -> None:
    features, labels = blobs
    rows = standardise(features)

    parameters = fit(rows, labels, 0.01, START)

    expected = refit(rows.double().numpy(), labels.numpy(), 0.01 * len(rows))
    np.testing.assert_allclose(centred(parameters), centred(expected), atol=1e-3)


@pytest.mark.slow
def test_labels_of_samples_left_out_choose_the_penalty(
    blobs: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = blobs
    chosen = logits_left_out(features, labels, NUM_CLASSES, ALL)

    of_each = []
    for penalty in PENALTIES:
        monkeypatch.setattr(linear_probe, "PENALTIES", (penalty,))
        of_each.append(logits_left_out(features, labels, NUM_CLASSES, ALL))

    losses = [float(F.cross_entropy(logits, labels)) for logits in of_each]
    assert float(F.cross_entropy(chosen, labels)) == pytest.approx(min(losses), abs=1e-4)
    assert losses[0] > min(losses) < losses[-1]


def test_rows_are_standardised_and_constant_features_zero() -> None:
    features = torch.tensor([[1.0, 1e4], [3.0, 1e4], [8.0, 1e4]])

    rows = standardise(features)

    torch.testing.assert_close(rows.mean(dim=0), torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(rows.square().mean(dim=0), torch.tensor([1.0, 0.0, 1.0]))


def test_any_number_of_threads_gives_the_same_bits(
    blobs: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_probe, "LOGITS_AT_ONCE", 40 * NUM_CLASSES)
    found = []
    for workers in (1, 3):
        monkeypatch.setattr(linear_probe, "num_workers", lambda workers=workers: workers)
        found.append(logits_left_out(*blobs, NUM_CLASSES, ALL))

    assert torch.equal(*found)


def test_samples_that_a_class_hardly_concerns_change_little(
    blobs: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels = standardise(blobs[0]), blobs[1]
    fitted = fit(rows, labels, 0.01, START)
    nearly = leave_out(rows, labels, fitted, 0.01)

    monkeypatch.setattr(linear_probe, "WEIGHT_KEPT", 1.0)

    assert not torch.equal(leave_out(rows, labels, fitted, 0.01), nearly)
    torch.testing.assert_close(leave_out(rows, labels, fitted, 0.01), nearly, rtol=0.01, atol=0.02)
