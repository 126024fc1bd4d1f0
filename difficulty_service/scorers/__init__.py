"""Scorers: features and labels in, one score per sample out; larger is harder.

`scores.score_columns.SCORERS` lists them, `rmd_reference` is the main one in its plainest form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ScorerInput:
    """What a scorer is given that needs all features at once.

    Attributes:
        features: Features of each sample, the mean of its augmentation runs; float32 on the CPU.
            Shape (samples, dim).
        labels: Class indices, int64. Shape (samples,).
        device: Device of the run, on which a scorer may compute; None where it has none.
        cosines: How well the name of each class fits, from -1 to 1, as a function from features
            (rows, dim) to (rows, classes); None unless the scorer needs words.
    """

    features: "Tensor"
    labels: "Tensor"
    num_classes: int
    seed: int
    device: "torch.device | None" = None
    cosines: "Callable[[Tensor], Tensor] | None" = None
