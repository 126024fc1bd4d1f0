"""Copies between the CPU and a GPU for which the program does not stand still.

CUDA copies to and from pinned memory while the program goes on. All other copies wait until the GPU
has done everything that was queued before.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


def send(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device; nothing waits where they go from the CPU to a GPU. Shape as given."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def send_all(value: Value, device: torch.device) -> Value:
    """A tensor, tuple or dataclass with all tensors in it, however deep, on a device."""
    there: Any = value
    if isinstance(value, Tensor):
        there = send(value, device)
    elif isinstance(value, tuple):
        there = tuple(send_all(each, device) for each in value)
    elif is_dataclass(value) and not isinstance(value, type):
        held = {each.name: getattr(value, each.name) for each in fields(value)}
        there = replace(value, **{name: send_all(each, device) for name, each in held.items()})
    return there


def begin_fetch_all(values: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
    """Begins to copy some values of one device to the CPU, behind what is queued there.

    Returns:
        What gives the values on the CPU, of the same shapes. It waits once, until all are there,
        but not for work that is queued later.
    """
    if not values or not values[0].is_cuda:
        return lambda: [each.cpu() for each in values]
    copies = [each.to("cpu", non_blocking=True) for each in values]  # in pinned memory
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(values[0].device))

    def fetch() -> list[Tensor]:
        arrived.synchronize()
        # Pinned memory is taken from the whole machine, and soon used again.
        return [copy.clone() for copy in copies]

    return fetch


def fetch_all(values: Sequence[Tensor]) -> list[Tensor]:
    """Some values of one device on the CPU, for which the program waits once. Shapes as given."""
    return begin_fetch_all(values)()
