"""What a classifier said about each sample, read off its logits once and in float64.

Float64 matters: in float32 the confidence of a sure sample rounds to exactly 1, and everything
that ranks samples by confidence then sees ties that are not there.
"""

from collections.abc import Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.errors import MetricError

NUMBERS_PER_BLOCK = 1 << 17
"""Logits handled at once: a block and its copy in float64 stay in a core's cache."""

MATRIX_DIMENSIONS = 2


def check_predictions(logits: Tensor, targets: Tensor) -> None:
    """Refuses what no metric can judge.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).

    Raises:
        MetricError: No samples, shapes that do not fit together, or a target is not one of the
            classes.
    """
    check_logits(logits)
    if targets.shape != logits.shape[:1]:
        raise MetricError(
            f"targets of shape {tuple(targets.shape)} beside logits of shape "
            f"{tuple(logits.shape)}; give one class index per row of logits"
        )
    num_classes = logits.shape[1]
    unknown = targets[(targets < 0) | (targets >= num_classes)].unique()
    if len(unknown):
        raise MetricError(
            f"targets {unknown[:5].tolist()} are outside 0 to {num_classes - 1}, the classes "
            f"the logits have; check that both come from the same list of classes"
        )


def check_logits(logits: Tensor) -> None:
    """Refuses logits that are not (samples, classes) with one of each at least."""
    if logits.ndim != MATRIX_DIMENSIONS or 0 in logits.shape:
        raise MetricError(
            f"logits of shape {tuple(logits.shape)}; give (samples, classes), one of each at least"
        )


def confidence_and_correct(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probability of every sample, and whether its class is the target.

    Of equal largest logits the first class is the prediction.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).

    Returns:
        Confidence, float64, and correctness, bool. Each of shape (samples,).

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, or a target is not
            one of the classes.
    """
    check_predictions(logits, targets)
    predictions = torch.from_numpy(as_array(logits).argmax(axis=1))
    return confidence(logits), predictions == targets.detach().cpu()


def confidence(logits: Tensor) -> Tensor:
    """The largest probability of every sample. Shape (samples,), float64."""
    return torch.cat([block.softmax(dim=1).amax(dim=1) for _, block in centred_blocks(logits)])


def entropy(logits: Tensor) -> Tensor:
    """Entropy of every predicted distribution, in nats. Shape (samples,), float64."""
    parts = []
    for _, block in centred_blocks(logits):
        exponentials = block.exp()
        total = exponentials.sum(dim=1)
        # A logit of minus infinity is probability 0, which adds nothing; 0 x infinity would be NaN.
        mean_logit = (exponentials * block.clamp_min(-1e300)).sum(dim=1) / total
        parts.append((total.log() - mean_logit).clamp_min(0))
    return torch.cat(parts)


def centred_blocks(logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Logits in float64 minus the largest of their row, a block of rows at a time.

    Args:
        logits: Shape (samples, classes), on any device.

    Yields:
        The rows, and their centred logits of shape (rows, classes), none above 0.

    Raises:
        MetricError: The largest logit of a row is NaN or infinite.
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
                f"as their largest; metrics need finite ones, so look for divergence in training"
            )
        yield rows, block - largest


def as_array(tensor: Tensor) -> NDArray[Any]:
    """The numbers of a tensor on any device, shared where possible; half precision widened."""
    on_cpu = tensor.detach().cpu()
    if on_cpu.dtype in {torch.float16, torch.bfloat16}:
        on_cpu = on_cpu.float()
    array: NDArray[Any] = on_cpu.numpy()
    return array
