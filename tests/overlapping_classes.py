"""Features of three classes that overlap, and their labels."""

import numpy as np

LABELS = np.arange(300) % 3

_NOISE = np.random.default_rng(0).standard_normal((300, 6), dtype=np.float32)

FEATURES = _NOISE + 1.5 * np.eye(3, 6, dtype=np.float32)[LABELS]
