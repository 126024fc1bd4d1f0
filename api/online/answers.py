"""What the process that scores samples answers; importable without torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Encoded = NDArray[np.float32] | str
"""Features of one image, of shape (dim,), or the reason why it cannot be read."""


@dataclass(frozen=True)
class Failure:
    """An error of the work, which the process has survived."""

    error: Exception
