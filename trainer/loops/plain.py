"""Difficulty in a loop of plain PyTorch, in one process or in several."""

from trainer.loops.attached import Attached
from trainer.own_loop import SampleObjective
from trainer.training.sampling import DifficultySampler


def attach(objective: SampleObjective, sampler: DifficultySampler | None = None) -> Attached:
    """Ties an objective and a sampler to a loop over `attach(...).epochs(number)`.

    Its state belongs into the checkpoints of the loop.

    Args:
        objective: Called with each training batch; `end_epoch` ends an epoch.
        sampler: The batch sampler of the loop's `DataLoader`, if it is one by difficulty.
    """
    return Attached(objective, sampler)
