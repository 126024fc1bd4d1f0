"""Confidence, correctness and entropy of predictions, computed from logits in float64.

In float32 the confidence of confident samples rounds to exactly 1, which creates ties in every
ranking by confidence.
"""

from collections.abc import Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import MetricError

NUMBERS_PER_BLOCK = 1 << 17
"""Number of logits per block: a block and its copy in float64 fit into a core's cache."""

MATRIX_DIMENSIONS = 2

ROUNDING = 8 * float(torch.finfo(torch.float64).eps)
"""Confidences that differ by no more are equal: processors round exponentials differently."""


def check_predictions(logits: Tensor, targets: Tensor) -> None:
    """Refuses logits and targets whose shapes do not fit, and targets that are not classes."""
    check_logits(logits)
    if targets.shape != logits.shape[:1]:
        raise MetricError(
            f"targets of shape {tuple(targets.shape)} beside logits of shape {tuple(logits.shape)}",
            "give one class index per row of logits",
        )
    num_classes = logits.shape[1]
    unknown = targets[(targets < 0) | (targets >= num_classes)].unique()
    if len(unknown):
        raise MetricError(
            f"targets {unknown[:5].tolist()} are outside 0 to {num_classes - 1}, the classes "
            f"the logits have",
            "check that both come from the same list of classes",
        )


def check_logits(logits: Tensor) -> None:
    """Validates that logits have shape (samples, classes), with at least one of each."""
    if logits.ndim != MATRIX_DIMENSIONS or 0 in logits.shape:
        raise MetricError(
            f"logits of shape {tuple(logits.shape)}",
            "give shape (samples, classes), with at least one of each",
        )


def confidence_and_correct(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probability of every sample, float64, and whether its class is the target, bool.

    Among equal largest logits the first class is the prediction. Each of shape (samples,).
    """
    check_predictions(logits, targets)
    predictions = torch.from_numpy(as_array(logits).argmax(axis=1))
    return confidence(logits), predictions == targets.detach().cpu()


def confidence(logits: Tensor) -> Tensor:
    """The largest probability of every sample, with ties joined. Shape (samples,), float64."""
    blocks = [block.softmax(dim=1).amax(dim=1) for _, block in centred_blocks(logits)]
    return join_ties(torch.cat(blocks))


def join_ties(values: Tensor) -> Tensor:
    """Makes values equal that differ by rounding error, so that every processor ranks them alike.

    Each becomes the smallest of those that lie no more than `ROUNDING` apart in a row with it.
    """
    ascending, order = values.sort()
    is_first = torch.cat([order.new_ones(1), (ascending.diff() > ROUNDING).long()])
    firsts = ascending[is_first.bool()]
    return torch.empty_like(values).scatter_(0, order, firsts[is_first.cumsum(0) - 1])


def entropy(logits: Tensor) -> Tensor:
    """Entropy of every predicted distribution, in nats. Shape (samples,), float64."""
    parts = []
    for _, block in centred_blocks(logits):
        exponentials = block.exp()
        total = exponentials.sum(dim=1)
        # A logit of minus infinity has probability 0 and adds nothing; 0 x infinity would be NaN.
        mean_logit = (exponentials * block.clamp_min(-1e300)).sum(dim=1) / total
        parts.append((total.log() - mean_logit).clamp_min(0))
    return torch.cat(parts)


def free_energy(logits: Tensor) -> Tensor:
    """`-log sum_k exp(logit_k)`, in nats: the larger, the less certain. Shape (samples,), float64.

    Liu et al. (NeurIPS 2020). Unlike probabilities it changes with a constant that is added to all
    logits of a sample.
    """
    largest = logits.detach().cpu().double().amax(dim=1)
    blocks = [block.exp().sum(dim=1).log() for _, block in centred_blocks(logits)]
    return -(largest + torch.cat(blocks))


def centred_blocks(logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yields logits in float64 minus the largest of their row, at most 0, in blocks of rows.

    A block comes with its rows. A largest logit of NaN or infinity raises MetricError.
    """
    check_logits(logits)
    rows_per_block = max(1, NUMBERS_PER_BLOCK // logits.shape[1])
    for start in range(0, len(logits), rows_per_block):
        rows = slice(start, min(start + rows_per_block, len(logits)))
        block = logits[rows].detach().cpu().double()
        largest = block.amax(dim=1, keepdim=True)
        broken = torch.nonzero(~largest.isfinite().squeeze(1))
        if len(broken):
            raise MetricError(
                f"the logits of row {start + int(broken[0])} have {float(largest[broken[0, 0]])} "
                f"as their largest",
                "check whether training diverged",
            )
        yield rows, block - largest


def as_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor on any device as an array, without a copy where possible; half becomes float32."""
    on_cpu = tensor.detach().cpu()
    if on_cpu.dtype in {torch.float16, torch.bfloat16}:
        on_cpu = on_cpu.float()
    array: NDArray[Any] = on_cpu.numpy()
    return array
