"""Golden numbers of the published code of pretrained visual uncertainties."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="session")
def golden() -> dict[str, Tensor]:
    """Inputs, values and gradients by name; see tests/data/README.md."""
    with np.load(DATA / "uncertainty.npz", allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}
