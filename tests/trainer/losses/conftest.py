"""Reference values and gradients of every loss, and the check against them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

DATA = Path(__file__).resolve().parents[2] / "data"

Loss = Callable[[Tensor, Tensor], Tensor]
# Rounding of gradients that cancel to nothing, where a relative tolerance asks too much.
ROUNDING = 1e-15
# Samples of set x whose probabilities are 0.2 and 0.5 but for rounding, which chose the gamma of
# the reference.
ON_THRESHOLD = (19, 22)


class Golden:
    """Logits and targets of the reference sets, with what reference implementations gave."""

    def __init__(self) -> None:
        self.sets = {name: dict(np.load(DATA / f"losses_{name}.npz")) for name in "abx"}
        self.rows = dict(np.load(DATA / "losses_x_rows.npz"))

    def batch(self, name: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
        """Logits that ask for a gradient, and targets."""
        arrays = self.sets[name]
        logits = torch.tensor(arrays["logits"], dtype=dtype, requires_grad=True)
        return logits, torch.tensor(arrays["targets"])

    def check(self, name: str, key: str, total: Tensor, logits: Tensor) -> None:
        """Holds a scalar and its gradient against a reference, to 1e-9 relative per sample."""
        arrays = self.sets[name]
        (gradient,) = torch.autograd.grad(total, logits)
        ours = gradient.numpy()
        expected = arrays[f"{key}__value"] - self.left_out(name, key).sum()
        np.testing.assert_allclose(total.item(), expected, rtol=1e-9, atol=0)
        assert np.isfinite(ours).all()
        if f"{key}__gradnorm" in arrays:
            norms = np.linalg.norm(ours, axis=1)
            np.testing.assert_allclose(norms, arrays[f"{key}__gradnorm"], rtol=1e-9, atol=ROUNDING)
            np.testing.assert_allclose(
                ours.sum(axis=0), arrays[f"{key}__gradsum"], rtol=1e-9, atol=1e-9 * norms.max()
            )
            return
        theirs = arrays[f"{key}__grad"]
        # A reference whose own gradient is NaN says nothing about that sample.
        known = np.isfinite(theirs).all(axis=1) & (self.left_out(name, key) == 0)
        distance = np.linalg.norm(ours[known] - theirs[known], axis=1)
        allowed = 1e-9 * np.linalg.norm(theirs[known], axis=1) + ROUNDING
        assert (distance <= allowed).all(), f"{key} on {name}: {distance / allowed}"

    def left_out(self, name: str, key: str) -> NDArray[np.float64]:
        """The reference's values of the samples that no total may hold. Shape (samples,)."""
        values = np.zeros(len(self.sets[name]["targets"]))
        if name == "x" and f"{key}__value" in self.rows:
            on_threshold = list(ON_THRESHOLD)
            values[on_threshold] = self.rows[f"{key}__value"][on_threshold]
        return values

    def check_loss(self, key: str, loss: Loss) -> None:
        """Holds the sum or mean, as the key says, of a loss against the reference on every set."""
        for name in self.sets:
            logits, targets = self.batch(name)
            losses = loss(logits, targets)
            assert losses.shape == targets.shape
            losses = losses[torch.from_numpy(self.left_out(name, key) == 0)]
            self.check(name, key, losses.sum() if key.endswith("_sum") else losses.mean(), logits)

    def check_extremes(self, loss: Loss) -> None:
        """Extreme and tied logits, together and each alone, stay finite in float32."""
        logits, targets = self.batch("x", torch.float32)
        rows = [(logits[[row]], targets[[row]]) for row in range(len(targets))]
        for some_logits, some_targets in [(logits, targets), *rows]:
            losses = loss(some_logits, some_targets)
            (gradient,) = torch.autograd.grad(losses.sum(), some_logits)
            assert losses.isfinite().all()
            assert gradient.isfinite().all()


@pytest.fixture(scope="session")
def golden() -> Golden:
    return Golden()


@pytest.fixture
def reference_batch(golden: Golden) -> Callable[..., tuple[Tensor, Tensor]]:
    return golden.batch


@pytest.fixture
def check_total(golden: Golden) -> Callable[..., None]:
    return golden.check


@pytest.fixture
def check_loss(golden: Golden) -> Callable[..., None]:
    return golden.check_loss


@pytest.fixture
def check_extremes(golden: Golden) -> Callable[..., None]:
    return golden.check_extremes
