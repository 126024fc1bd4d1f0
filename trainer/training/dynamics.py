"""How a run learns each of its samples, by the predictions of its training steps.

The margins of the area under the margin (AUM, Pleiss et al. 2020), the error norms of EL2N (Paul et
al. 2021) and the forgetting events of Toneva et al. (2019). A prediction is that of the step which
trained on the sample, so it costs no pass over the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional as F

SEEN, MARGIN, ERROR_NORM, RIGHT = range(4)
"""Rows of the sums."""

COLUMNS = ("aum", "el2n", "forgetting", "incorrectness")
"""Columns of a score file; larger is harder in all."""


@dataclass
class Dynamics:
    """Sums over the epochs that are done and over the steps of the current one.

    Updated in place by the loop.

    Attributes:
        totals: Epochs that had the sample, and sums over them of its margin, error norm and
            whether it was right. Float64, shape (4, samples).
        current: The same of the steps of this process in the current epoch, where the first row
            counts steps. Float64, shape (4, samples).
        forgotten: How often it was wrong after it had been right. Shape (samples,).
        was_right: Whether it was right when last seen. Shape (samples,).
    """

    totals: Tensor
    current: Tensor
    forgotten: Tensor
    was_right: Tensor

    @classmethod
    def of(cls, num_samples: int) -> "Dynamics":
        """The state before the first epoch."""
        sums = torch.zeros(4, num_samples, dtype=torch.float64)
        return cls(sums, sums.clone(), torch.zeros(num_samples), sums[0].bool())

    def add(self, positions: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Adds the predictions of a step.

        Args:
            positions: Position of each sample. Shape (samples of the step,).
            logits: Shape (samples of the step, classes), with at least two classes.
            labels: Class indices, on the device of the logits. Shape (samples of the step,).
        """
        logits = logits.detach().float()
        own = logits.gather(1, labels[:, None]).squeeze(1)
        others = logits.scatter(1, labels[:, None], -torch.inf).amax(dim=1)
        errors = logits.softmax(dim=1) - F.one_hot(labels, logits.shape[1])
        right = (logits.argmax(dim=1) == labels).float()
        values = torch.stack([torch.ones_like(own), own - others, errors.norm(dim=1), right])
        self.current.index_add_(1, positions, values.double().cpu())

    def end_epoch(self, accelerator: Accelerator) -> None:
        """Closes an epoch; all processes must call this together.

        Of a sample that the epoch had several times, the mean counts; of one that it left out,
        nothing.
        """
        sums = self._summed(accelerator)
        seen = sums[SEEN] > 0
        means = sums / sums[SEEN].clamp(min=1)
        self.totals += means
        self.totals[SEEN] += seen.double() - means[SEEN]
        right = means[RIGHT] >= 0.5  # noqa: PLR2004 - more often than not
        self.forgotten += seen & self.was_right & ~right
        self.was_right = torch.where(seen, right, self.was_right)
        self.current = torch.zeros_like(self.current)

    def columns(self) -> dict[str, Tensor]:
        """The score columns; NaN of a sample that no epoch had. Each of shape (samples,)."""
        epochs, margin, error_norm, right = self.totals
        # One that was never right is forgotten as often as it was seen.
        forgotten = torch.where(right > 0, self.forgotten.double(), epochs)
        found = (-margin / epochs, error_norm / epochs, forgotten, 1 - right / epochs)
        return {
            name: values.where(epochs > 0, torch.nan)
            for name, values in zip(COLUMNS, found, strict=True)
        }

    def state(self, accelerator: Accelerator) -> dict[str, Tensor]:
        """What a checkpoint holds, of all processes, which must call this together."""
        return {**vars(self), "current": self._summed(accelerator)}

    def load(self, state: Mapping[str, Tensor], accelerator: Accelerator) -> None:
        """Restores a state; the main process goes on with the sums of all."""
        for name, value in state.items():
            setattr(self, name, value)
        if not accelerator.is_main_process:
            self.current = torch.zeros_like(self.current)

    def _summed(self, accelerator: Accelerator) -> Tensor:
        if accelerator.num_processes == 1:
            return self.current
        # Not every device has numbers of double precision.
        return accelerator.reduce(self.current.float().to(accelerator.device), "sum").double().cpu()
