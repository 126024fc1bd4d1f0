"""What every method gets, and what it gives back."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Samples:
    """Features with given labels, of which some may be wrong.

    Attributes:
        features: float32. Shape (samples, dim).
        labels: Given labels, 0 to classes - 1. Shape (samples,).
        classes: Number of classes.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: int


@dataclass(frozen=True)
class Verdict:
    """What a method says of the samples.

    Attributes:
        scores: Larger where a label should be wrong, by column. Shape (samples,) each.
        flagged: Samples that the method's own cut calls wrong, for columns that have one.
        choices: What the method chose by itself, JSON values.
    """

    scores: dict[str, NDArray[np.float64]]
    flagged: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=dict)
