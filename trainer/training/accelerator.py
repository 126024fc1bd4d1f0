"""Where a run computes, and in which precision: one device or several, through Accelerate."""

import os
from typing import Literal

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from difficulty_service.errors import TrainingError

Precision = Literal["auto", "fp32", "bf16", "fp16"]
MIXED: dict[str, Literal["no", "bf16", "fp16"]] = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


def make_accelerator(device: str, precision: Precision) -> Accelerator:
    """The devices of this process and of those started beside it by `accelerate launch`.

    Args:
        device: "auto", "cpu", "cuda", "cuda:1" or "mps"; with several processes Accelerate deals
            out the devices, and only "auto" and "cpu" make sense.
        precision: Of forward and backward; "auto" is bf16 on GPUs that compute in it.

    Raises:
        TrainingError: There is no such device here, or it has no such precision.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if launched and device not in {"auto", "cpu"}:
        raise TrainingError(
            f"device {device!r} for {os.environ['WORLD_SIZE']} processes; leave --device out, "
            "accelerate gives each process its own"
        )
    if device not in {"auto", "cpu"}:
        _require_device(device)
        os.environ["ACCELERATE_TORCH_DEVICE"] = device
    else:
        os.environ.pop("ACCELERATE_TORCH_DEVICE", None)
    on_cpu = device == "cpu" or os.environ.get("ACCELERATE_USE_CPU", "").lower() in {"1", "true"}
    mixed = MIXED.get(precision, "bf16" if _computes_in_bf16(on_cpu=on_cpu) else "no")
    if mixed == "fp16" and (on_cpu or not torch.cuda.is_available()):
        raise TrainingError(
            "training.precision = 'fp16' needs a CUDA device; use 'bf16', 'fp32' or 'auto'"
        )
    # Accelerate keeps its state for the whole process and refuses a second run that differs.
    AcceleratorState._reset_state(reset_partial_state=not launched)
    return Accelerator(mixed_precision=mixed, cpu=on_cpu)


def any_process(value: bool, accelerator: Accelerator) -> bool:  # noqa: FBT001 - its one argument
    """Whether something is so in this process or in another; all processes ask together."""
    if accelerator.num_processes == 1:
        return value
    flag = torch.tensor([float(value)], device=accelerator.device)
    return bool(accelerator.reduce(flag, "sum").item() > 0)


def _require_device(name: str) -> None:
    try:
        torch.empty(1, device=torch.device(name))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(f"device {name!r} cannot be used here: {reason}") from None


def _computes_in_bf16(*, on_cpu: bool) -> bool:
    if on_cpu or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability() >= (8, 0)
