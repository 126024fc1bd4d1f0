"""The training objective: `loss - alpha * weight * entropy` for each sample.

Only this module knows about difficulty. Alpha zero is the plain loss, weights of one are ordinary
entropy regularisation, and weights made from difficulty scores are the method of Cui et al. (2023).
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from trainer.losses.cross_entropy import entropy


@dataclass(frozen=True)
class Objective:
    """A loss whose predictions are rewarded for their entropy by the difficulty of the sample.

    Attributes:
        loss: Function of logits and targets that returns one loss per sample.
        alpha: Strength of the entropy term, zero or more; about 0.1 to 0.3 in the paper.

    Raises:
        ValueError: Alpha is negative.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not self.alpha >= 0:
            raise ValueError(f"alpha {self.alpha} must be zero or more")

    def __call__(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The value to minimise for each sample; the loop takes the mean or the sum.

        Args:
            logits: Shape (samples, classes).
            targets: Class indices. Shape (samples,).
            weights: Weight of each sample, larger for harder ones, without gradient; None weighs
                all by one. Shape (samples,).

        Returns:
            `loss - alpha * weight * entropy`. Shape (samples,).

        Raises:
            ValueError: There is not one weight per sample.
        """
        if weights is not None and weights.shape != targets.shape:
            # Without this a column of weights would broadcast to samples times samples.
            raise ValueError(
                f"weights of shape {tuple(weights.shape)} for {len(targets)} samples; give one "
                "weight per sample, in one dimension"
            )
        losses = self.loss(logits, targets)
        if self.alpha == 0:
            return losses
        reward = entropy(logits)
        if weights is not None:
            reward = weights.detach().to(reward) * reward
        return losses - self.alpha * reward
