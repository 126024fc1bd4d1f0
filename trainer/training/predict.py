"""Logits of every sample of a split, whatever the number of processes."""

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from trainer.samples import Inputs


def share_of_process(positions: Tensor, accelerator: Accelerator) -> Tensor:
    """Those of some samples that this process works on; shares differ by one sample at most."""
    return positions.tensor_split(accelerator.num_processes)[accelerator.process_index]


def to_memory_format(inputs: Tensor, *, channels_last: bool) -> Tensor:
    """Images with their channels last in memory, where asked for; others as they are."""
    if channels_last and inputs.ndim == 4:  # noqa: PLR2004 - samples, channels, height, width
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


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
    """What a model says about every sample, in evaluation mode; the model's mode is kept.

    Args:
        model: From a batch of inputs to logits.
        inputs: Of the split.
        num_samples: Samples of the split.
        batch_size: Largest number of samples at once, over all processes.
        accelerator: Of this process.
        channels_last: Memory format of images.

    Returns:
        Logits, float32 on the CPU, the same in every process. Shape (samples, classes).
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
    """The rows of all processes, each in its place."""
    rows = accelerator.gather(accelerator.pad_across_processes(logits)).cpu()
    places = accelerator.pad_across_processes(positions.to(accelerator.device), pad_index=-1)
    places = accelerator.gather(places).cpu()
    gathered = rows.new_empty(num_samples, rows.shape[1])
    gathered[places[places >= 0]] = rows[places >= 0]
    return gathered
