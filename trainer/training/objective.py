"""What training minimises: `loss - alpha * weight * entropy` per sample, then their mean or sum.

Only this module knows about difficulty. Alpha zero is the plain loss, weights of one are ordinary
entropy regularisation, and weights made from difficulty scores are the method of Cui et al. (2023).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from trainer.losses.cross_entropy import entropy

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class Objective:
    """Any loss, with the entropy of each prediction rewarded by the difficulty of its sample.

    Attributes:
        loss: From logits and targets to one loss per sample.
        alpha: Strength of the entropy term, zero or more; about 0.1 to 0.3 in the paper.
        reduction: "mean", or "sum" as the focal family's papers have it, who clip the gradient to
            length 2 with it.

    Raises:
        ValueError: Alpha is negative, or the reduction has another name.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    alpha: float = 0.0
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        if not self.alpha >= 0:
            raise ValueError(f"alpha {self.alpha} must be zero or more")
        if self.reduction not in ("mean", "sum"):
            raise ValueError(f"no reduction {self.reduction!r}; choose 'mean' or 'sum'")

    def __call__(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The number to minimise for one batch.

        Args:
            logits: Shape (samples, classes).
            targets: Class indices. Shape (samples,).
            weights: Larger for harder samples, constants to the gradient; None is one for all.
                Shape (samples,).

        Returns:
            A scalar.

        Raises:
            ValueError: Weights are not one per sample.
        """
        losses = self.per_sample(logits, targets, weights)
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def per_sample(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The same before the mean or sum.

        Args:
            logits: Shape (samples, classes).
            targets: Class indices. Shape (samples,).
            weights: As in `__call__`. Shape (samples,).

        Returns:
            `loss - alpha * weight * entropy`. Shape (samples,).

        Raises:
            ValueError: Weights are not one per sample.
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
