"""Difficulty in the Trainer of Hugging Face."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import EvalPrediction, Trainer, TrainerCallback

from difficulty_service.base.errors import ConfigError
from trainer.loops.attached import Attached
from trainer.own_loop import INDEX, IndexedDataset, SampleObjective
from trainer.training.sampling import DifficultySampler

MEMORY = "objective.pt"
"""File in a checkpoint with the state of the objective."""


def attach(
    loop: Trainer, objective: SampleObjective, sampler: DifficultySampler | None = None
) -> None:
    """Makes a Trainer minimise an objective, say its epochs, and save it with its checkpoints.

    Args:
        loop: A Trainer of a model whose output has `logits`, before `train`.
        objective: Of the samples of `loop.train_dataset`, in that order.
        sampler: Makes the training batches, of all processes together, in place of the Trainer's.

    Raises:
        ConfigError: An argument of the Trainer keeps the objective from being computed.
    """
    _refuse(loop, objective)
    changed: Any = loop  # its methods are replaced
    if not isinstance(loop.train_dataset, IndexedDataset):
        changed.train_dataset = IndexedDataset(changed.train_dataset)
    attached = _TrainerLoop(loop, objective, sampler)
    changed.compute_loss, changed.train = attached.compute_loss, attached.train
    changed.model_accepts_loss_kwargs = False  # a mean of the batch, whatever accumulates
    if sampler is not None:
        changed.get_train_dataloader = attached.training_batches
    if objective.learns:
        changed.compute_metrics = attached.compute_metrics
    loop.add_callback(_TrainerCallback(attached))


class _TrainerLoop(Attached):
    """What a Trainer calls in place of its own methods."""

    def __init__(
        self, loop: Trainer, objective: SampleObjective, sampler: DifficultySampler | None
    ) -> None:
        super().__init__(objective, sampler)
        self.own_loss: Callable[..., Any] = loop.compute_loss
        self.own_metrics: Callable[..., Any] | None = loop.compute_metrics
        self.own_train: Callable[..., Any] = loop.train
        self.loop: Any = loop
        self.resumed_from: str | Path | None = None
        self.has_to_learn = False

    def train(
        self,
        resume_from_checkpoint: str | Path | bool | None = None,  # noqa: FBT001 - its signature
        *arguments: Any,
        **options: Any,
    ) -> Any:
        """Remembers where the state of the objective is."""
        self.resumed_from = None
        if isinstance(resume_from_checkpoint, str | Path):
            self.resumed_from = resume_from_checkpoint
        return self.own_train(resume_from_checkpoint, *arguments, **options)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 - the Trainer's signature
        num_items_in_batch: Tensor | None = None,
    ) -> Any:
        """The mean of the objective over a training batch; validation has the model's own loss."""
        if INDEX not in inputs:
            return self.own_loss(model, inputs, return_outputs, num_items_in_batch)
        inputs = dict(inputs)
        index = inputs.pop(INDEX)
        outputs = model(**inputs)
        loss = self.objective(outputs["logits"], inputs["labels"], index).mean()
        return (loss, outputs) if return_outputs else loss

    def training_batches(self) -> DataLoader[Any]:
        """The training samples in the sampler's order; nothing shares them out once more."""
        arguments = self.loop.args
        return DataLoader(
            self.loop.train_dataset,
            batch_sampler=self.sampler,
            collate_fn=self.loop.data_collator,
            num_workers=arguments.dataloader_num_workers,
            pin_memory=arguments.dataloader_pin_memory and torch.cuda.is_available(),
        )

    def compute_metrics(self, evaluated: EvalPrediction) -> dict[str, Any]:
        """The metrics of the Trainer; the first evaluation after an epoch ends that, too."""
        if self.has_to_learn:
            self.has_to_learn = False
            logits, targets = evaluated.predictions, evaluated.label_ids
            logits = logits[0] if isinstance(logits, tuple) else logits
            self.end_epoch_of_all(*map(torch.as_tensor, (logits, targets)))
        return {} if self.own_metrics is None else self.own_metrics(evaluated)


class _TrainerCallback(TrainerCallback):
    """Tells the objective where the Trainer is."""

    def __init__(self, attached: _TrainerLoop) -> None:
        self.attached = attached

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step:  # resumed
            file = _memory(args, state, self.attached.resumed_from)
            if not file.exists():
                raise ConfigError(
                    f"the checkpoint {str(file.parent)!r} has no state of an objective",
                    "resume from one that was made after attach, or train from the start",
                )
            self.attached.objective.load_state_dict(torch.load(file, weights_only=True))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.attached.start_epoch(int(state.epoch), state.num_train_epochs)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A Trainer that is stopped within an epoch comes here, too, and evaluates.
        self.attached.has_to_learn = float(state.epoch).is_integer()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            torch.save(self.attached.objective.state_dict(), _memory(args, state))


def _memory(arguments: Any, state: Any, checkpoint: str | Path | None = None) -> Path:
    """The file in a checkpoint, or in that of the step where the Trainer is."""
    return Path(checkpoint or f"{arguments.output_dir}/checkpoint-{state.global_step}", MEMORY)


def _refuse(loop: Any, objective: SampleObjective) -> None:
    arguments = loop.args
    if loop.train_dataset is None or not hasattr(loop.train_dataset, "__getitem__"):
        raise ConfigError("the Trainer has no train_dataset with positions", "give it one")
    if len(loop.train_dataset) != objective.num_samples:
        raise ConfigError(
            f"the Trainer has {len(loop.train_dataset)} training samples, and the objective "
            f"{objective.num_samples}",
            "give both the same",
        )
    if arguments.remove_unused_columns:
        raise ConfigError(
            "the Trainer removes the positions of samples",
            "set remove_unused_columns=False in TrainingArguments",
        )
    if arguments.label_smoothing_factor:
        raise ConfigError(
            "label_smoothing_factor has no effect beside an objective",
            'leave it out, or use SampleObjective("label_smoothing")',
        )
    if not objective.learns:
        return
    if arguments.eval_strategy != "epoch" or loop.eval_dataset is None:
        raise ConfigError(
            "the loss learns from validation predictions after every epoch",
            'give the Trainer an eval_dataset, and eval_strategy="epoch"',
        )
    if loop.preprocess_logits_for_metrics is not None or arguments.batch_eval_metrics:
        raise ConfigError(
            "the loss learns from the logits of all validation samples",
            "leave out preprocess_logits_for_metrics and batch_eval_metrics",
        )
