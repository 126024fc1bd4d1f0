"""The learning rate at every step, as a share of its highest."""

import math

from trainer.config import ScheduleConfig


def rate_at(step: int, steps: int, epochs: int, config: ScheduleConfig) -> float:
    """How high the learning rate is at a step.

    Args:
        step: Counted from zero over the whole run.
        steps: Of the whole run.
        epochs: Of the whole run; milestones of 1 and more are counted in them.
        config: The form of the schedule.

    Returns:
        A share of the highest learning rate, in (0, 1].
    """
    warmup = config.warmup * steps
    if step < warmup:
        # The first step must learn something, so the rise starts one step above zero.
        return (step + 1) / (math.floor(warmup) + 1)
    if config.name == "steps":
        return config.factor ** _milestones_passed(step, steps, epochs, config)
    done = (step - warmup) / (steps - warmup)
    if config.name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    if config.name == "one_cycle":
        return 1 - done
    return 1.0


def _milestones_passed(step: int, steps: int, epochs: int, config: ScheduleConfig) -> int:
    shares = [stone if stone < 1 else stone / epochs for stone in config.milestones]
    # Half a step of slack: 150 / 350 of the steps must be the first step of epoch 150.
    return sum(step + 0.5 >= share * steps for share in shares)
