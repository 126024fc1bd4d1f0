"""Correctness ranking (CRL): confidence should rank samples by how often they were correct.

Moon et al. (2020). Every sample is compared with the next of its batch, the last with the first.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.base.device_copies import send
from trainer.losses.constants import require_at_least
from trainer.losses.targets import require_indices

Confidence = Literal["max_probability", "entropy", "margin"]


def confidence_of(logits: Tensor, *, confidence: Confidence = "max_probability") -> Tensor:
    """Confidence of each prediction, by one of three definitions.

    Args:
        logits: Shape (samples, classes).
        confidence: "max_probability"; "entropy", its negative divided by log(classes); or
            "margin", the largest minus the second largest probability.

    Returns:
        Confidence, larger is more confident. Shape (samples,).

    Raises:
        ValueError: The confidence has another name.
    """
    if confidence == "max_probability":
        return logits.softmax(dim=-1).max(dim=-1).values
    if confidence == "entropy":
        log_probabilities = logits.log_softmax(dim=-1)
        negative_entropy = (log_probabilities.exp() * log_probabilities).sum(dim=-1)
        return negative_entropy / torch.tensor(float(logits.shape[-1])).log().item()
    if confidence == "margin":
        largest = logits.softmax(dim=-1).topk(2, dim=-1).values
        return largest[:, 0] - largest[:, 1]
    raise ValueError(
        f"no confidence {confidence!r}; choose 'max_probability', 'entropy' or 'margin'"
    )


def ranking_term(confidence: Tensor, correctness: Tensor) -> Tensor:
    """`max(0, |c_i - c_j| - sign(c_i - c_j) * (k_i - k_j))` with j the next sample of the batch.

    Args:
        confidence: k, with gradient. Shape (samples,).
        correctness: c, normalised number of epochs in which each sample was correct. Shape
            (samples,).

    Returns:
        One term per sample, zero for pairs of equal correctness. Shape (samples,).
    """
    difference = correctness - correctness.roll(-1)
    lead = confidence - confidence.roll(-1)
    return F.relu(difference.abs() - difference.sign() * lead)


class CorrectnessRanking:
    """CRL: cross-entropy plus a ranking of confidence by how often a sample was right.

    It adds `coefficient * ranking_term`, with a history of every training sample.

    The correctness of a sample is `(n - smallest n) / (most - smallest n)`: n counts the epochs in
    which the sample was correct, the smallest n is taken over the training set, and `most` is the
    number of finished epochs, at least 1. This follows the paper's code, where the paper has the
    fraction of epochs. Correctness is therefore zero in the first epoch and can exceed 1 late in an
    epoch. Where all samples were always correct, that code divides zero by zero; here all samples
    have equal rank.

    Of a sample that an epoch has several times, as samplers by difficulty or with replacement draw
    it and a last batch that is filled up repeats it, the first prediction of the epoch counts; one
    that an epoch leaves out was not correct in it.

    The loop calls `before_training`, then `before_epoch`, and around each step `before_batch` and
    `after_batch`.
    """

    def __init__(
        self, *, coefficient: float = 1.0, confidence: Confidence = "max_probability"
    ) -> None:
        require_at_least(0, coefficient=coefficient)
        self.coefficient = coefficient
        self.confidence: Confidence = confidence
        self._most, self._epoch = 1, 0
        self._batch: Tensor = torch.empty(0, dtype=torch.int64)
        self.before_training([])

    def before_training(self, sample_ids: Sequence[str]) -> None:
        """Starts an empty history of the training samples."""
        self._rows = {sample_id: row for row, sample_id in enumerate(sample_ids)}
        self._counts = torch.zeros(len(self._rows), dtype=torch.int64)
        self._counted = torch.zeros(len(self._rows), dtype=torch.bool)

    def before_epoch(self, epoch: int, _epochs: int) -> None:
        """Sets the number of finished epochs; epochs are counted from zero."""
        self._most = max(1, epoch)
        if epoch != self._epoch:  # a run that resumes within an epoch begins it twice
            self._epoch = epoch
            self._counted = torch.zeros_like(self._counted)

    def before_batch(self, sample_ids: Sequence[str]) -> None:
        """Sets the samples of the next call.

        Raises:
            ValueError: A sample is not a training sample.
        """
        unknown = [sample_id for sample_id in sample_ids if sample_id not in self._rows]
        if unknown:
            raise ValueError(
                f"{len(unknown)} samples, such as {unknown[0]!r}, are not among the "
                f"{len(self._rows)} of the history; name all in before_training"
            )
        self._batch = torch.tensor([self._rows[sample_id] for sample_id in sample_ids])

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy plus the ranking term of each sample.

        Raises:
            ValueError: `before_batch` was called with another number of samples, or targets are
                distributions.
        """
        require_indices(
            logits, targets, "correctness_ranking", "it counts how often the label was predicted"
        )
        if len(self._batch) != len(targets):
            raise ValueError(
                f"{len(targets)} samples in the batch, but {len(self._batch)} were named; call "
                "before_batch with their ids first"
            )
        correctness = self._correctness(logits.device).to(logits)
        term = ranking_term(confidence_of(logits, confidence=self.confidence), correctness)
        return F.cross_entropy(logits, targets, reduction="none") + self.coefficient * term

    def after_batch(self, correct: Tensor) -> None:
        """Counts the correct predictions, after the step, of samples that are new in the epoch."""
        device = correct.device
        rows, place = self._batch.unique(return_inverse=True)
        order = torch.arange(len(place))
        first = torch.full_like(rows, len(place)).scatter_reduce(0, place, order, "amin")
        new = ~self._counted[rows]
        right = correct.detach()[send(first[new], device)].to(torch.int64)
        self._counts = self._counts.to(device).index_add_(0, send(rows[new], device), right)
        self._counted[rows] = True

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {
            "sample_ids": list(self._rows),
            "counts": self._counts.cpu(),
            "most": self._most,
            "epoch": self._epoch,
            "counted": self._counted,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        self.before_training(state["sample_ids"])
        self._counts = state["counts"].clone()
        self._most = state["most"]
        if "counted" in state:  # an older checkpoint has none, and its epoch begins anew
            self._epoch, self._counted = state["epoch"], state["counted"].clone()

    def _correctness(self, device: torch.device) -> Tensor:
        """Normalised counts of the batch, on a device, where the counts stay. Shape (samples,)."""
        if len(self._batch) == 0:
            return torch.zeros(0, device=device)
        self._counts = self._counts.to(device)
        smallest = self._counts.min()
        span = self._most - smallest
        counts = (self._counts[send(self._batch, device)] - smallest).double()
        return torch.where(span > 0, counts / span, 0.0)
