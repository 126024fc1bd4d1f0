"""The best epoch of a run by a validation metric, and the parameters of its model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from trainer.config import BestBy

HIGHER_IS_BETTER: Mapping[BestBy, bool] = {
    "accuracy": True,
    "nll": False,
    "ece": False,
    "adaptive_ece": False,
}
"""Whether a larger value of a metric is better."""


@dataclass
class BestEpoch:
    """The best epoch so far, updated in place by the loop.

    Attributes:
        by: Validation metric that decides.
        epoch: Number of the epoch, counted from one; 0 before the first.
        value: Value of the metric; None before the first epoch.
        parameters: Parameters and buffers of the model, on the CPU.
    """

    by: BestBy
    epoch: int = 0
    value: float | None = None
    parameters: dict[str, Tensor] = field(default_factory=dict)

    def update(self, epoch: int, value: float, model: nn.Module) -> None:
        """Keeps a model that is better than all before; the first one wins a tie.

        Args:
            epoch: Number of the epoch, counted from one.
            value: Value of the metric on the validation samples.
            model: Model at the end of that epoch.
        """
        sign = 1 if HIGHER_IS_BETTER[self.by] else -1
        if self.value is not None and sign * value <= sign * self.value:
            return
        self.epoch, self.value = epoch, value
        self.parameters = {
            name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()
        }
