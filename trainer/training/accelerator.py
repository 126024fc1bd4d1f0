"""Devices and precision of a run, by Accelerate, and logits by any number of processes."""

import atexit
import os
from datetime import timedelta
from typing import Literal

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs
from torch import Tensor, nn

from difficulty_service.base.devices import has_gpu, left_out_gpus, problem_of
from difficulty_service.base.errors import Setting, TrainingError
from difficulty_service.base.processors import computes_in_bfloat16
from trainer.config import TrainingConfig
from trainer.samples import Inputs, Samples

Precision = Literal["auto", "fp32", "bf16", "fp16"]
MIXED: dict[str, Literal["no", "bf16", "fp16"]] = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}

OTHER_ENGINES = {
    "FSDP": "launch without it, and set training.fsdp = true in the recipe",
    "DEEPSPEED": "launch without it; training.fsdp = true shares parameters between processes",
    "MEGATRON_LM": "launch without it; training.fsdp = true shares parameters between processes",
}
"""Ways in which Accelerate would change a model, and what to do in their place."""

SET_BY_LAUNCHERS = ("WORLD_SIZE", "ACCELERATE_USE_CPU")
"""Variables that torchrun and `accelerate launch` set, the latter also for one process."""

LONGEST_WORK_OF_ONE = timedelta(hours=12)
"""Time for which processes wait for one that works alone, such as on the uncertainty head.

By default those with GPUs end after ten minutes. One that dies ends the others at once in any case,
by the program that launched them.
"""


def make_accelerator(device: str, precision: Precision) -> Accelerator:
    """Makes the accelerator of this process, which may be one of several of `accelerate launch`.

    Args:
        device: "auto", "cpu", "cuda", "cuda:1" or "mps"; only "auto" or "cpu" with several
            processes, to which Accelerate assigns the devices.
        precision: Precision of forward and backward; "auto" is bf16 on GPUs that support it.
    """
    for engine, advice in OTHER_ENGINES.items():
        if os.environ.get(f"ACCELERATE_USE_{engine}", "").lower() in {"1", "true"}:
            raise TrainingError(f"Accelerate is configured for {engine}, not for this run", advice)
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if launched and device not in {"auto", "cpu"}:
        raise TrainingError(
            f"device {device!r} for {os.environ['WORLD_SIZE']} processes",
            "leave out ",
            Setting("device"),
            ", as Accelerate assigns a device to each process",
            parameter="device",
        )
    if device not in {"auto", "cpu"}:
        if (problem := problem_of(device)) is not None:
            raise TrainingError(
                f"device {device!r} cannot be used here: {problem}", parameter="device"
            )
        os.environ["ACCELERATE_TORCH_DEVICE"] = device
    else:
        os.environ.pop("ACCELERATE_TORCH_DEVICE", None)
    on_cpu = device == "cpu" or os.environ.get("ACCELERATE_USE_CPU", "").lower() in {"1", "true"}
    if not on_cpu and any(name in os.environ for name in SET_BY_LAUNCHERS):
        require_named_gpus()
    on_gpu = not on_cpu and has_gpu()
    # Accelerate would take a GPU that is there and cannot compute.
    on_cpu = on_cpu or (torch.cuda.is_available() and not on_gpu)
    gpu = torch.device(device) if device.startswith("cuda") else None  # None: the current one
    has_bf16 = on_gpu and torch.cuda.get_device_capability(gpu) >= (8, 0)
    mixed = MIXED.get(precision, "bf16" if has_bf16 else "no")
    if mixed == "fp16" and not on_gpu:
        raise TrainingError(
            "training.precision = 'fp16' needs a CUDA device", "set it to 'bf16', 'fp32' or 'auto'"
        )
    # Accelerate keeps one state per process and refuses a second run with other settings.
    AcceleratorState._reset_state(reset_partial_state=not launched)
    group = InitProcessGroupKwargs(timeout=LONGEST_WORK_OF_ONE)
    accelerator = Accelerator(mixed_precision=mixed, cpu=on_cpu, kwargs_handlers=[group])
    if launched:
        atexit.unregister(_leave_other_processes)
        atexit.register(_leave_other_processes)
    return accelerator


def require_named_gpus() -> None:
    """Refuses to have fewer GPUs share the work than CUDA_VISIBLE_DEVICES names."""
    if (left_out := left_out_gpus()) is not None:
        raise TrainingError(
            left_out,
            "name GPUs that nvidia-smi lists, or use ",
            Setting("device", "cpu"),
            parameter="device",
        )


def require_processes(settings: TrainingConfig, accelerator: Accelerator) -> None:
    """Refuses settings for several processes that these ones cannot follow."""
    if settings.fsdp and accelerator.num_processes == 1:
        raise TrainingError(
            "training.fsdp = true needs other processes to share the parameters with, but there is "
            "one",
            "start several with `accelerate launch`, or leave it out",
        )
    if settings.fsdp and accelerator.mixed_precision == "fp16":
        raise TrainingError(
            "training.fsdp = true does not scale the gradients of training.precision = 'fp16'",
            "set it to 'bf16' or 'fp32'",
        )
    on_cpu = accelerator.device.type == "cpu"
    if settings.sync_batchnorm and on_cpu and accelerator.num_processes > 1:
        raise TrainingError(
            "training.sync_batchnorm = true needs GPUs: PyTorch has no batch statistics of several "
            "processes without",
            "leave it out, or train in one process",
        )


def emulated_precision(accelerator: Accelerator) -> tuple[str, ...]:
    """A sentence where the precision is one that the processor lacks instructions for, else none.

    It then takes several times as long as float32.
    """
    is_emulated = accelerator.device.type == "cpu" and accelerator.mixed_precision == "bf16"
    if not is_emulated or computes_in_bfloat16():
        return ()
    return (
        "training.precision = 'bf16' is emulated on this processor, which takes several times as "
        "long as 'fp32'",
    )


def _leave_other_processes() -> None:
    """Ends the threads that talk to the other processes.

    One that still runs while the interpreter is torn down can abort a process whose run succeeded.
    """
    PartialState().destroy_process_group()


def any_process(value: bool, accelerator: Accelerator) -> bool:  # noqa: FBT001 - its one argument
    """Whether a value is true in any process; all processes must call this together."""
    if accelerator.num_processes == 1:
        return value
    flag = torch.tensor([float(value)], device=accelerator.device)
    return bool(accelerator.reduce(flag, "sum").item() > 0)


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
