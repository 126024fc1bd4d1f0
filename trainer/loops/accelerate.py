"""Difficulty in a loop of Accelerate."""

from typing import Any

from accelerate import Accelerator

from trainer.loops.attached import Attached
from trainer.own_loop import SampleObjective
from trainer.training.sampling import DifficultySampler


def attach(
    accelerator: Accelerator,
    objective: SampleObjective,
    sampler: DifficultySampler | None = None,
) -> Attached:
    """Ties an objective and a sampler to a loop over `attach(...).epochs(number)`.

    `accelerator.save_state` and `load_state` save and load them, too.

    Args:
        accelerator: The loop's.
        objective: Called with each training batch; `end_epoch` ends an epoch.
        sampler: The batch sampler of the loop's `DataLoader`, if it is one by difficulty; on
            several processes that loader stays out of `accelerator.prepare`.
    """
    attached = _Loop(accelerator, objective, sampler)
    accelerator.register_for_checkpointing(attached)
    return attached


class _Loop(Attached):
    """Keeps prepared loaders from counting epochs themselves, from zero in a resumed run."""

    def __init__(
        self,
        accelerator: Accelerator,
        objective: SampleObjective,
        sampler: DifficultySampler | None,
    ) -> None:
        super().__init__(objective, sampler)
        self.accelerator = accelerator

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        prepared: list[Any] = self.accelerator._dataloaders
        for loader in prepared:
            if self.sampler is not None and _sampler_of(loader) is self.sampler:
                loader.set_epoch(epoch)


def _sampler_of(loader: Any) -> object:
    """The innermost batch sampler of a prepared loader."""
    sampler = loader.batch_sampler
    while hasattr(sampler, "batch_sampler"):
        sampler = sampler.batch_sampler
    return sampler
