"""Every random choice of a run as a function of the seed and of what it is for.

Nothing depends on how many numbers were drawn before, so a run goes on at any step as if it had
never stopped, and several processes agree without talking.
"""

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from trainer.samples import NUM_DRAWS


class Purpose(IntEnum):
    """What a stream of random numbers is for; the values are part of what a seed means."""

    PARAMETERS = 0
    ORDER = 1
    AUGMENTATION = 2
    DROPOUT = 3


def seed_of(seed: int, purpose: Purpose, *indices: int) -> int:
    """A seed of its own for every purpose and index, 63 bits."""
    sequence = np.random.SeedSequence([seed, purpose, *indices])
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def generator_of(seed: int, purpose: Purpose, *indices: int) -> torch.Generator:
    """A generator on the CPU, seeded by `seed_of`."""
    return torch.Generator().manual_seed(seed_of(seed, purpose, *indices))


def plan_epoch(num_samples: int, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """The batches of one epoch: every sample once, in a new order, in batches of nearly one size.

    Spreading the samples evenly uses every one without a small last batch, whose gradient and
    batch statistics would be noise.

    Args:
        num_samples: Training samples.
        batch_size: Largest batch.
        seed: Of the run.
        epoch: Counted from zero.

    Returns:
        Positions of the samples of each batch, int64. Sizes differ by one at most.
    """
    order = torch.randperm(num_samples, generator=generator_of(seed, Purpose.ORDER, epoch))
    return list(order.tensor_split(-(-num_samples // batch_size)))


def draw_augmentation(num_samples: int, seed: int, epoch: int) -> Tensor:
    """Numbers in [0, 1) that decide how each sample is changed. Shape (samples, NUM_DRAWS)."""
    generator = generator_of(seed, Purpose.AUGMENTATION, epoch)
    return torch.rand(num_samples, NUM_DRAWS, generator=generator)
