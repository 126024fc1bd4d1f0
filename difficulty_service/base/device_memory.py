"""Work on a device in as many parts as its memory asks for."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.base.errors import BackboneError, Setting


@dataclass
class Room:
    """What the memory of a device has been seen to hold.

    Attributes:
        device: Name of the device.
        most: Rows that are computed at once; None while all of them fitted.
    """

    device: torch.device
    most: int | None = None

    def compute(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """The function of some rows, in parts of half the size where they do not fit.

        Args:
            function: Computes each row on its own. Takes (rows, …) and returns as many rows.
            rows: Shape (rows, …).

        Raises:
            BackboneError: There is too little memory for a single row.
        """
        results: list[Tensor] = []
        start = 0
        while start < len(rows):
            some = rows[start : start + (self.most or len(rows))]
            if (result := self._try(function, some)) is not None:
                results.append(result)
                start += len(some)
        return results[0] if len(results) == 1 else torch.cat(results)

    def _try(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor | None:
        """The function of some rows; None where they do not fit, and fewer are to be tried."""
        try:
            return function(rows)
        except torch.OutOfMemoryError:
            pass  # what the error holds on to is released before memory is asked for again
        if len(rows) == 1:
            raise BackboneError(
                f"{self.device} has too little memory for one sample at once",
                "use ",
                Setting("device", "cpu"),
                parameter="device",
            )
        if self.most is None:
            warnings.warn(
                f"{self.device} has too little memory for {len(rows)} samples at once, which are "
                "computed in parts",
                stacklevel=2,
            )
        self.most = len(rows) // 2
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return None
