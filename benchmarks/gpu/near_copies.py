"""The search for near copies between two sets of features, on the device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu.parts import Row, Rows, Setting
from difficulty_service.scorers.near_copies import near_pairs_between

SIZES, DIM = (20_000, 200_000), 512
QUICK_SIZES, QUICK_DIM = (50, 500), 8
THRESHOLD = 0.95


def measure_near_copies(setting: Setting) -> Rows:
    """Pairs of samples that are compared in a second; the first size warms up."""
    sizes, dim = (QUICK_SIZES, QUICK_DIM) if setting.quick else (SIZES, DIM)
    for size in sizes:
        generator = torch.Generator(setting.device).manual_seed(0)
        features = torch.randn(size, dim, generator=generator, device=setting.device)
        seconds = _seconds(setting, F.normalize(features))
        rate = size**2 / seconds / 1e9
        yield Row(f"near copies, {size:,} x {dim}", rate, "billion pairs/s", "of two equal sets")


def _seconds(setting: Setting, features: Tensor) -> float:
    def search() -> int:
        pairs = near_pairs_between(features, features, THRESHOLD)
        return sum(len(rows) for rows, _, _ in pairs)

    return setting.time(search)
