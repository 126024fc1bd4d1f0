"""An objective and a sampler that begin their epochs, and are saved, together."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from trainer.own_loop import SampleObjective
from trainer.training.sampling import DifficultySampler, process_of_all


class Attached:
    """What a training loop has to tell an objective and a sampler.

    Attributes:
        objective: Its loss may have memory.
        sampler: Its batches are those of the epochs; None for any other order.
    """

    def __init__(
        self, objective: SampleObjective, sampler: DifficultySampler | None = None
    ) -> None:
        self.objective, self.sampler = objective, sampler

    @property
    def next_epoch(self) -> int:
        """The epoch that is under way, or the next one, counted from zero."""
        if self.sampler is not None:
            return self.sampler.epoch
        return (self.objective.epoch or 0) + self.objective.has_ended

    def epochs(self, number: int) -> Iterator[int]:
        """The epochs of a loop that is left to do, each begun, from the first that is not done.

        Args:
            number: Number of all epochs.

        Yields:
            The number of each, from zero.

        Raises:
            RuntimeError: The loss learns from validation predictions, and got none of an epoch.
        """
        for epoch in range(self.next_epoch, number):
            self.start_epoch(epoch, number)
            yield epoch

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Begins an epoch, counted from zero, of how many; or goes on with it."""
        if self.sampler is not None:
            self.sampler.set_epoch(epoch)
        self.objective.start_epoch(epoch, epochs)

    def end_epoch_of_all(self, logits: Tensor, targets: Tensor) -> None:
        """Ends an epoch where each process has the validation predictions of all of them.

        Args:
            logits: Shape (validation samples, classes).
            targets: Class indices. Shape (validation samples,).
        """
        rank, processes = process_of_all()
        self.objective.end_epoch(logits[rank::processes], targets[rank::processes])

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, after any batch or after `end_epoch` of the objective."""
        sampler = self.sampler
        place = None if sampler is None else sampler.state_dict(batches=self.objective.batches)
        return {"objective": self.objective.state_dict(), "sampler": place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a checkpoint was made.

        Raises:
            ValueError: It was made with other samples, or with a sampler where there is none now,
                or the other way round.
        """
        if (self.sampler is None) != (state["sampler"] is None):
            ours, theirs = ("with", "without") if self.sampler is not None else ("without", "with")
            raise ValueError(
                f"the checkpoint was made {theirs} a DifficultySampler, and this loop is {ours} "
                "one; attach the same as before"
            )
        self.objective.load_state_dict(state["objective"])
        if self.sampler is not None:
            self.sampler.load_state_dict(state["sampler"])
