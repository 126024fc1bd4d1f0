"""Schedules of the learning rate, as a fraction of the highest rate."""

import math

from trainer.config import Schedule, StepRate


def rate_at(step: int, steps: int, epochs: int, config: Schedule) -> float:
    """The learning rate at a step.

    Args:
        step: Step, counted from zero over the whole run.
        steps: Number of steps of the whole run.
        epochs: Number of epochs of the whole run, the unit of milestones of 1 and more.
        config: Schedule of the recipe.

    Returns:
        Fraction of the highest learning rate, in (0, 1].
    """
    warmup = config.warmup * steps
    if step < warmup:
        # A rate of zero would waste the first step, so the rise starts one step above zero.
        return (step + 1) / (math.floor(warmup) + 1)
    if config.name == "steps":
        return config.factor ** _milestones_passed(step, steps, epochs, config)
    done = (step - warmup) / (steps - warmup)
    if config.name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    if config.name == "one_cycle":
        return 1 - done
    return 1.0


def _milestones_passed(step: int, steps: int, epochs: int, config: StepRate) -> int:
    fractions = [
        milestone if milestone < 1 else milestone / epochs for milestone in config.milestones
    ]
    # Half a step of tolerance: 150 / 350 of the steps must be the first step of epoch 150.
    return sum(step + 0.5 >= fraction * steps for fraction in fractions)
