"""Rates and random numbers of a run as a function of its seed, the epoch and the step.

Random numbers also depend on their purpose, but not on the numbers drawn before, so a run resumes
at any step as if it had never stopped, and several processes draw the same numbers without
communication.
"""

import math
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from trainer.config.steps import EasyFirst, HardFirst, Sampling, Schedule
from trainer.samples import NUM_DRAWS


class Purpose(IntEnum):
    """Purpose of a stream of random numbers; other values would change the meaning of a seed."""

    PARAMETERS = 0
    ORDER = 1
    AUGMENTATION = 2
    DROPOUT = 3
    HEAD = 4


def seed_of(seed: int, purpose: Purpose, *indices: int) -> int:
    """A different seed of 63 bits for every purpose and index."""
    sequence = np.random.SeedSequence([seed, purpose, *indices])
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def generator_of(seed: int, purpose: Purpose, *indices: int) -> torch.Generator:
    """A generator on the CPU, seeded by `seed_of`."""
    return torch.Generator().manual_seed(seed_of(seed, purpose, *indices))


def plan_epoch(
    num_samples: int, batch_size: int, seed: int, epoch: int, groups: Tensor | None = None
) -> list[Tensor]:
    """The batches of one epoch: every sample once, in random order, in nearly equal batches.

    Equal sizes avoid a small last batch, whose gradient and batch statistics would be noisy: the
    numbers of samples, or of groups whose samples stay together, differ by at most one.
    """
    generator = generator_of(seed, Purpose.ORDER, epoch)
    if groups is None:
        order = torch.randperm(num_samples, generator=generator)
        return list(order.tensor_split(-(-num_samples // batch_size)))
    _, group_of, sizes = groups.unique(return_inverse=True, return_counts=True)
    order = torch.randperm(len(sizes), generator=generator)
    by_group = group_of.argsort(stable=True).split(sizes.tolist())
    batches = order.tensor_split(-(-len(order) // batch_size))
    return [torch.cat([by_group[group] for group in batch.tolist()]) for batch in batches]


def plan_by_difficulty(
    difficulty: Tensor, batch_size: int, seed: int, epoch: int, epochs: int, sampling: Sampling
) -> list[Tensor]:
    """The batches of one epoch in an order by difficulty, as many as `plan_epoch` makes.

    "easy_first" and "hard_first" draw from a growing part of the samples, see `trainer.config`.
    "mixed" cuts the samples, sorted by difficulty, into as many strata as a batch has samples, and
    deals each stratum out to all batches. Samples of equal difficulty count in their order.

    Args:
        difficulty: Finite, larger is harder. Shape (samples,).
        batch_size: Largest number of samples of a batch.
        seed: Seed of the order.
        epoch: Number of the epoch, from zero.
        epochs: Number of all epochs.
        sampling: Order and its pace.

    Returns:
        Positions of the samples of each batch; sizes differ by at most one.
    """
    num_samples = len(difficulty)
    if sampling.order == "random":
        return plan_epoch(num_samples, batch_size, seed, epoch)
    generator = generator_of(seed, Purpose.ORDER, epoch)
    num_batches = -(-num_samples // batch_size)
    ranked = difficulty.argsort(stable=True, descending=sampling.order == "hard_first")
    if sampling.order == "mixed":
        return _dealt_out(ranked, num_batches, generator)
    pool = ranked[: pool_size(num_samples, epoch, epochs, sampling)]
    rounds = [
        pool[torch.randperm(len(pool), generator=generator)]
        for _ in range(-(-num_samples // len(pool)))
    ]
    return list(torch.cat(rounds)[:num_samples].tensor_split(num_batches))


def pool_size(num_samples: int, epoch: int, epochs: int, sampling: EasyFirst | HardFirst) -> int:
    """The number of samples that an epoch draws from: `start` of all, growing evenly to all."""
    done = min(1.0, epoch / (sampling.until * epochs))
    return math.ceil(round((sampling.start + (1 - sampling.start) * done) * num_samples, 9))


def _dealt_out(ranked: Tensor, num_batches: int, generator: torch.Generator) -> list[Tensor]:
    """Batches with one sample of each stratum; which one, and their order in it, is random."""
    num_strata = -(-len(ranked) // num_batches)
    strata = ranked.new_full((num_strata, num_batches), -1)
    strata.view(-1)[: len(ranked)] = ranked
    batches = _shuffled_rows(_shuffled_rows(strata, generator).T, generator)
    return [batch[batch >= 0] for batch in batches]


def _shuffled_rows(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows.gather(1, torch.rand(rows.shape, generator=generator).argsort(dim=1))


def draw_augmentation(num_samples: int, seed: int, epoch: int) -> Tensor:
    """Random numbers in [0, 1) for the augmentation of each sample. Shape (samples, NUM_DRAWS)."""
    generator = generator_of(seed, Purpose.AUGMENTATION, epoch)
    return torch.rand(num_samples, NUM_DRAWS, generator=generator)


def rate_at(step: int, steps: int, epochs: int, config: Schedule) -> float:
    """The learning rate at a step of the whole run, as a fraction of the highest one, in (0, 1].

    Milestones of 1 and more are epochs.
    """
    warmup = config.warmup * steps
    if step < warmup:
        # A rate of zero would waste the first step, so the rise starts one step above zero.
        return (step + 1) / (math.floor(warmup) + 1)
    if config.name == "steps":
        fractions = (each if each < 1 else each / epochs for each in config.milestones)
        # Half a step of tolerance: 150 / 350 of the steps must be the first step of epoch 150.
        return config.factor ** sum(step + 0.5 >= fraction * steps for fraction in fractions)
    done = (step - warmup) / (steps - warmup)
    if config.name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    if config.name == "one_cycle":
        return 1 - done
    return 1.0
