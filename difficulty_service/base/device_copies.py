"""Copies between the CPU and a GPU for which the program does not stand still.

CUDA copies to and from pinned memory while the program goes on. All other copies wait until the GPU
has done everything that was queued before.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def send(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device; nothing waits where they go from the CPU to a GPU. Shape as given."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def begin_fetch(values: Tensor) -> Callable[[], Tensor]:
    """Begins to copy values to the CPU, behind what is queued on their device.

    Returns:
        What gives the values on the CPU, of the same shape. It waits until they are there, but not
        for work that is queued later.
    """
    if not values.is_cuda:
        return values.cpu
    copy = values.to("cpu", non_blocking=True)  # in pinned memory
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(values.device))

    def fetch() -> Tensor:
        arrived.synchronize()
        return copy.clone()  # pinned memory is taken from the whole machine, and soon used again

    return fetch


def fetch_all(values: Sequence[Tensor]) -> list[Tensor]:
    """Some values of one device on the CPU, for which the program waits once. Shapes as given."""
    if not values or not values[0].is_cuda:
        return [each.cpu() for each in values]
    copies = [each.to("cpu", non_blocking=True) for each in values]  # in pinned memory
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(values[0].device))
    arrived.synchronize()
    return [each.clone() for each in copies]  # see `begin_fetch`
