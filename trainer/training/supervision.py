"""How far the loss trusts the label of each sample, as tensors.

`trainer.weights.label_trust` reads these beliefs from a score file; nothing here knows of files.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import TrainingError


@dataclass(frozen=True)
class Supervision:
    """What the loss of each sample is computed from besides its given label.

    Attributes:
        weights: Factor of the objective of each sample, with mean 1 over the training samples; None
            counts all alike. Shape (samples,).
        shares: Share of the given label in the loss, from 0 to 1; the rest belongs to `others`.
            None where the given labels are the only ones. Shape (samples,).
        others: A second label of each sample; None where there is none. Shape (samples,).
    """

    weights: Tensor | None = None
    shares: Tensor | None = None
    others: Tensor | None = None

    def of(self, positions: Tensor, device: torch.device) -> "Supervision":
        """The supervision of some samples, on a device."""
        weights, shares, others = (
            None if each is None else send(each[positions], device)
            for each in (self.weights, self.shares, self.others)
        )
        return Supervision(weights, shares, others)

    def mixed(self, shares: Tensor) -> "Supervision":
        """The supervision of samples that are mixed from these.

        Only without second labels, which a mixture of labels has no place for.

        Args:
            shares: How much of each sample is in each mixed one. Shape (mixed, samples).
        """
        return self if self.weights is None else Supervision(shares.to(self.weights) @ self.weights)


TRUSTED = Supervision()
"""Supervision by the given labels alone."""


@dataclass(frozen=True)
class LabelBeliefs:
    """What is believed about the labels of the training samples, in their order.

    Attributes:
        probabilities: Probability that the given label is right, 1 where nothing is known.
            Shape (samples,).
        known: Whether it is known. Shape (samples,).
        others: Likeliest other class, or the given label where nothing is known. Shape (samples,).
    """

    probabilities: Tensor
    known: Tensor
    others: Tensor

    def as_second_labels(self) -> Supervision:
        """Each label counts by its probability; the likeliest other class has the rest."""
        return Supervision(shares=self.probabilities.float(), others=self.others)

    def as_weights(self) -> Supervision:
        """Each sample counts by the probability of its label.

        Raises:
            TrainingError: No label is believed at all.
        """
        mean = self.probabilities[self.known].mean()
        if not mean > 0:
            raise TrainingError(
                "the p_wrong of every training sample is 1",
                "look at the labels, or train without loss.weights",
            )
        weights = torch.where(self.known, self.probabilities / mean, 1.0)
        return Supervision(weights=weights.float())

    def describe(self) -> dict[str, float | int]:
        """JSON values: the mean probability, and how many samples are doubted or not known.

        Kish's effective sample size of weights by the probability is a share of all samples.
        """
        known = self.probabilities[self.known]
        return {
            "mean_probability": float(known.mean()),
            "more_likely_wrong": int((known < 0.5).sum()),  # noqa: PLR2004 - a probability
            "effective_share": float(known.mean() ** 2 / known.square().mean()),
            "missing": int((~self.known).sum()),
        }
