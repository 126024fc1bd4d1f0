"""The training objective: `loss - alpha * weight * entropy` for each sample.

Only this module knows about difficulty. Alpha zero is the plain loss, weights of one are ordinary
entropy regularisation, and weights made from difficulty scores are the method of Cui et al. (2023).
Supervision decides how far the labels are trusted, whatever the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from trainer.losses.cross_entropy import entropy
from trainer.training.supervision import TRUSTED, Supervision


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

    def __call__(
        self,
        logits: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        supervision: Supervision = TRUSTED,
    ) -> Tensor:
        """The value to minimise for each sample; the loop takes the mean or the sum.

        Second labels make the loss its expectation over both labels. Weights of the supervision
        multiply the whole objective: a sample whose label is wrong looks hard for that reason
        alone, and should not be kept uncertain either.

        Args:
            logits: Shape (samples, classes).
            targets: Class indices of shape (samples,), or distributions of shape (samples,
                classes), which some losses refuse.
            weights: Weight of each sample, larger for harder ones, without gradient; None weighs
                all by one. Shape (samples,).

        Returns:
            `loss - alpha * weight * entropy`, times the weight of the supervision. Shape
            (samples,).

        Raises:
            ValueError: There is not one weight per sample.
        """
        if weights is not None and weights.shape != targets.shape[:1]:
            # Without this a column of weights would broadcast to samples times samples.
            raise ValueError(
                f"weights of shape {tuple(weights.shape)} for {len(targets)} samples; give one "
                "weight per sample, in one dimension"
            )
        losses = self.loss(logits, targets)
        if supervision.shares is not None and supervision.others is not None:
            shares = supervision.shares.to(losses)
            losses = shares * losses + (1 - shares) * self.loss(logits, supervision.others)
        if self.alpha > 0:
            reward = entropy(logits)
            if weights is not None:
                reward = weights.detach().to(reward) * reward
            losses = losses - self.alpha * reward
        if supervision.weights is not None:
            losses = supervision.weights.to(losses) * losses
        return losses
