"""The moving average of a model's parameters, which waits for no GPU."""

from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class MovingAverage(AveragedModel):
    """An exponential moving average of the parameters and buffers of a model, on a device.

    PyTorch's own reads the number of updates from the device in each of them, which waits for all
    that is queued there.

    Args:
        decay: Share of the average that stays in an update, in (0, 1).
    """

    def __init__(self, model: nn.Module, decay: float, device: torch.device) -> None:
        super().__init__(model, device, use_buffers=True)
        self.n_averaged = self.n_averaged.cpu()
        self._move = get_ema_multi_avg_fn(decay)

    def update_parameters(self, model: nn.Module) -> None:
        """Moves the average towards a model on the same device, or to the first one."""
        tensors: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        own = chain(self.module.parameters(), self.module.buffers())
        others = chain(model.parameters(), model.buffers())
        for average, value in zip(own, others, strict=True):
            averages, values = tensors.setdefault(average.dtype, ([], []))
            averages.append(average.detach())
            values.append(value.detach())
        for averages, values in tensors.values():
            if self.n_averaged == 0:
                torch._foreach_copy_(averages, values)
            else:
                self._move(averages, values, self.n_averaged)
        self.n_averaged += 1
