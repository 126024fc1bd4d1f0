"""Difficulty in Lightning."""

from collections.abc import Mapping, Sequence
from typing import Any

import lightning
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DistributedSampler

from difficulty_service.base.errors import ConfigError
from trainer.loops.attached import Attached
from trainer.own_loop import SampleObjective
from trainer.training.sampling import DifficultySampler


def attach(
    objective: SampleObjective, sampler: DifficultySampler | None = None
) -> lightning.Callback:
    """A callback, `Trainer(callbacks=[attach(objective)])`, that says epochs and saves the state.

    `training_step` calls the objective. Where its loss learns from validation predictions,
    `validation_step` returns a dictionary of `logits` and `targets`.

    Args:
        objective: Of the training samples.
        sampler: The batch sampler of the training loader, if it is one by difficulty; a run that
            is resumed within an epoch goes on at its next batch. On several processes it needs
            `Trainer(use_distributed_sampler=False)`.
    """
    return _LightningCallback(Attached(objective, sampler))


class _LightningCallback(lightning.Callback):
    def __init__(self, attached: Attached) -> None:
        self.attached = attached
        self.predictions: list[tuple[Tensor, Tensor]] = []

    def on_train_start(self, trainer: lightning.Trainer, pl_module: LightningModule) -> None:
        # Resumed within an epoch, Lightning does not call `on_train_epoch_start` of it.
        self._start(trainer)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: LightningModule) -> None:
        self._start(trainer)

    def _start(self, trainer: lightning.Trainer) -> None:
        """Begins the epoch; with `max_steps`, `max_epochs` is -1."""
        together = trainer.accumulate_grad_batches
        steps_of_epoch = -(-int(trainer.num_training_batches) // together)
        epochs = -(-int(trainer.estimated_stepping_batches) // steps_of_epoch)
        self.attached.start_epoch(trainer.current_epoch, epochs)

    def on_validation_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not self.attached.objective.learns or trainer.sanity_checking or dataloader_idx:
            return
        if not isinstance(outputs, Mapping) or not {"logits", "targets"} <= outputs.keys():
            raise ConfigError(
                "the loss learns from validation predictions",
                'return {"logits": ..., "targets": ...} from validation_step',
            )
        self.predictions.append((outputs["logits"].detach(), outputs["targets"]))

    def on_validation_epoch_end(
        self, trainer: lightning.Trainer, pl_module: LightningModule
    ) -> None:
        is_training = trainer.state.fn == "fit" and not trainer.sanity_checking
        if self.predictions and is_training:
            logits, targets = map(torch.cat, zip(*self.predictions, strict=True))
            end_epoch = self.attached.end_epoch_of_all
            if _is_shared_out(trainer):
                end_epoch = self.attached.objective.end_epoch
            end_epoch(logits, targets)
        self.predictions.clear()

    def state_dict(self) -> dict[str, Any]:
        return self.attached.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.attached.load_state_dict(state_dict)


def _is_shared_out(trainer: lightning.Trainer) -> bool:
    """Whether each process has its own part of the validation samples."""
    loader: Any = trainer.val_dataloaders
    loader = loader[0] if isinstance(loader, Sequence) else loader
    return isinstance(getattr(loader, "sampler", None), DistributedSampler)
