"""The type of a metric of weighted samples."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
"""How often each sample counts, in whole numbers. Shape (resamples, samples)."""

Values = dict[str, NDArray[np.float64]]
"""Metrics by name, NaN where one has no value. Each of shape (resamples,)."""

Statistic = Callable[[Counts], Values]
