"""Logits of every sample of a split, for any number of processes."""

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from trainer.config import TrainingConfig
from trainer.samples import Inputs, Samples


def share_of_process(positions: Tensor, accelerator: Accelerator) -> Tensor:
    """This process's share of some positions; shares differ by at most one sample."""
    return positions.tensor_split(accelerator.num_processes)[accelerator.process_index]


def to_memory_format(inputs: Tensor, *, channels_last: bool) -> Tensor:
    """Converts images to channels last in memory; other inputs stay unchanged."""
    if channels_last and inputs.ndim == 4:  # noqa: PLR2004 - samples, channels, height, width
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def predict_split(
    model: nn.Module, samples: Samples, settings: TrainingConfig, accelerator: Accelerator
) -> Tensor:
    """As `predict`, of a split with the settings of a recipe."""
    return predict(
        model,
        samples.inputs,
        len(samples),
        settings.evaluation_batch_size,
        accelerator,
        channels_last=settings.channels_last,
    )


@torch.no_grad()
def predict(
    model: nn.Module,
    inputs: Inputs,
    num_samples: int,
    batch_size: int,
    accelerator: Accelerator,
    *,
    channels_last: bool = False,
) -> Tensor:
    """Computes the logits of every sample in evaluation mode, and restores the model's mode.

    A batch has at most `batch_size` samples over all processes. Float32 on the CPU, the same in
    every process. Shape (samples, classes).
    """
    batches = torch.arange(num_samples).split(batch_size)
    plan = [share for batch in batches if len(share := share_of_process(batch, accelerator))]
    was_training = model.training
    model.eval()
    with accelerator.autocast():
        parts = [
            model(to_memory_format(batch, channels_last=channels_last)).float()
            for batch in inputs.batches(plan, None)
        ]
    model.train(was_training)
    if accelerator.num_processes == 1:
        return torch.cat(parts).cpu()
    return _gather(torch.cat(parts), torch.cat(plan), num_samples, accelerator)


def _gather(
    logits: Tensor, positions: Tensor, num_samples: int, accelerator: Accelerator
) -> Tensor:
    """The rows of all processes, in the order of the samples."""
    rows = accelerator.gather(accelerator.pad_across_processes(logits)).cpu()
    all_positions = accelerator.pad_across_processes(positions.to(accelerator.device), pad_index=-1)
    all_positions = accelerator.gather(all_positions).cpu()
    gathered = rows.new_empty(num_samples, rows.shape[1])
    is_sample = all_positions >= 0
    gathered[all_positions[is_sample]] = rows[is_sample]
    return gathered
