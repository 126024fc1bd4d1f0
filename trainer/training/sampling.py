"""Batches in an order by difficulty, for data loaders; resumable, and shared among processes."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypedDict, Unpack

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor
from torch.utils.data import Sampler

from difficulty_service.base.errors import ConfigError
from trainer.config.steps import PacedOrder, Sampling
from trainer.training.plan import plan_by_difficulty

Order = Literal["random", "easy_first", "hard_first", "mixed"]


class Pace(TypedDict, total=False):
    """How fast "easy_first" and "hard_first" come to all samples: keys of a recipe's [sampling].

    Attributes:
        start: Fraction of the samples in the first epoch; 0.2 by default.
        until: Fraction of all epochs after which every sample takes part; 0.5 by default.
    """

    start: float
    until: float


class DifficultySampler(Sampler[list[int]]):
    """Batches of positions in an order by difficulty: `DataLoader(dataset, batch_sampler=...)`.

    - "easy_first": each epoch draws from the easiest samples, a part that grows evenly to all of
      them; "hard_first": from the hardest. Every epoch has as many batches as any other.
    - "mixed": each epoch has all samples, and each batch as many of each difficulty.
    - "random": each epoch has all samples.

    The order depends on the seed and the epoch alone, so that it is the same after `state_dict` and
    `load_state_dict`. Every pass that draws a batch is one epoch, however early it stops; only the
    first one after `load_state_dict` has fewer batches. Among several processes each gets its share
    of every batch: shares differ by at most one sample, and no sample is there twice.

    Attributes:
        epoch: Number of the epoch of the latest pass, or of the first one before that.
        batch: Number of its batches that were drawn.
    """

    def __init__(
        self,
        difficulty: Tensor,
        batch_size: int,
        order: Order,
        *,
        epochs: int | None = None,
        seed: int = 0,
        process: tuple[int, int] | None = None,
        **pace: Unpack[Pace],
    ) -> None:
        """Prepares the order of every epoch.

        Args:
            difficulty: Difficulty of each sample, as `trainer.read_difficulty` gives it; larger is
                harder. Shape (samples,).
            batch_size: Largest number of samples of a batch, over all processes together.
            order: See above.
            epochs: Number of all epochs, which "easy_first" and "hard_first" need.
            seed: Seed of the order, the same in every process.
            process: Number of this process, from zero, and of all processes; by default those of
                `torch.distributed` as a pass begins, as Lightning starts them late.

        Raises:
            ConfigError: An option is unknown, wrong or without effect.
            ValueError: Difficulties are not finite, there is no batch or epoch, or a process would
                get nothing of a batch.
        """
        if difficulty.ndim != 1 or not difficulty.isfinite().all():
            raise ValueError(
                f"difficulty of shape {tuple(difficulty.shape)} must be finite, one number for "
                "each sample"
            )
        self.sampling = _sampling({"order": order, **pace})
        if isinstance(self.sampling, PacedOrder) and epochs is None:
            raise ConfigError(
                f"order={order!r} grows over the epochs", "give their number as epochs"
            )
        if min(len(difficulty), batch_size, 1 if epochs is None else epochs) < 1:
            raise ValueError(
                f"{len(difficulty)} samples in batches of {batch_size} for {epochs} epochs; give "
                "at least one of each"
            )
        self.difficulty, self.seed, self.process = difficulty, seed, process
        # Accelerate drops or fills up every batch below an attribute `batch_size`.
        self._batch_size = batch_size
        self.epochs = 1 if epochs is None else epochs
        self._share()
        self.epoch, self.batch, self._passes = 0, 0, 0
        self._next: tuple[int, int] | None = (0, 0)

    @property
    def sampler(self) -> "DifficultySampler":
        """Itself: Lightning and Accelerate call `set_epoch` of the sampler in a batch sampler."""
        return self

    def __len__(self) -> int:
        """Number of batches of every epoch."""
        return -(-len(self.difficulty) // self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the next epoch, this process's share of each.

        The pass begins with its first batch: a `DataLoader` with worker processes makes two
        iterators at first, and draws from the second.

        Raises:
            ConfigError: Accelerate shares out the batches, too.
            ValueError: A process would get nothing of a batch.
        """
        return _Pass(self)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next pass that of an epoch, counted from zero.

        It has all of the epoch, but for one that `load_state_dict` put the sampler into.
        """
        if epoch != self.epoch:
            self._begin_at(epoch, 0)
        elif self._next is None:
            self._next = epoch, 0

    def state_dict(self, batches: int | None = None) -> dict[str, int]:
        """Where the sampler is, for a checkpoint.

        Args:
            batches: Number of batches of the epoch of the latest pass that are done. By default all
                that were drawn, but worker processes of a `DataLoader` draw some ahead.
        """
        return {
            "epoch": self.epoch,
            "batch": self.batch if batches is None else batches,
            "seed": self.seed,
            "samples": len(self.difficulty),
            "batch_size": self._batch_size,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on where a checkpoint was made, on any number of processes.

        After the last batch of an epoch that is the next one, so that no pass is empty.

        Raises:
            ValueError: It was made with other samples or another batch size.
        """
        for name, value in (("samples", len(self.difficulty)), ("batch_size", self._batch_size)):
            if state[name] != value:
                raise ValueError(
                    f"the checkpoint has {name} {state[name]}, and this sampler {value}"
                )
        self.seed = state["seed"]
        whole, batch = divmod(state["batch"], len(self))
        self._begin_at(state["epoch"] + whole, batch)

    def _batches(self, place: tuple[int, int] | None) -> Iterator[list[int]]:
        """The batches of a pass that begins at an epoch and batch, or at the next epoch."""
        rank, processes = self._share()
        self.epoch, self.batch = place or self._next or (self.epoch + 1, 0)
        self._next = None
        self._passes += 1
        this_pass = self._passes
        plan = plan_by_difficulty(
            self.difficulty, self._batch_size, self.seed, self.epoch, self.epochs, self.sampling
        )
        for drawn, batch in enumerate(plan[self.batch :], self.batch + 1):
            if self._passes == this_pass:  # an older pass may still be drawn from
                self.batch = drawn
            yield batch.tensor_split(processes)[rank].tolist()

    def _begin_at(self, epoch: int, batch: int) -> None:
        """Makes this the place where the next pass begins; one under way counts no more."""
        self._next = self.epoch, self.batch = epoch, batch
        self._passes += 1

    def _share(self) -> tuple[int, int]:
        """Number of this process, and of all, that the batches are shared among."""
        rank, processes = process_of_all() if self.process is None else self.process
        smallest = len(self.difficulty) // len(self)
        if smallest < processes:
            raise ValueError(
                f"batches of {smallest} samples for {processes} processes; make batch_size larger"
            )
        if processes > 1 and _is_prepared_by_accelerate(self):
            raise ConfigError(
                f"each of {processes} processes draws its share of every batch, and Accelerate "
                "gives it only some of those",
                "leave this data loader out of accelerator.prepare",
            )
        return rank, processes


class _Pass(Iterator[list[int]]):
    """One pass over a sampler, with a place of its own for `StatefulDataLoader` of torchdata.

    That one loads the end of an epoch, too, and throws the iterator away: it has to be empty.
    """

    def __init__(self, sampler: DifficultySampler) -> None:
        self._sampler = sampler
        self._batches: Iterator[list[int]] | None = None
        self._place: tuple[int, int] | None = None

    def __next__(self) -> list[int]:
        if self._batches is None:
            self._batches = self._sampler._batches(self._place)
        return next(self._batches)

    def state_dict(self) -> dict[str, int]:
        return self._sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._place = state["epoch"], state["batch"]


def _is_prepared_by_accelerate(sampler: DifficultySampler) -> bool:
    """Whether the data loader that is being drawn from is one of Accelerate around this sampler."""
    state = sys.modules.get("accelerate.state")
    if state is None or not state.GradientState._shared_state:
        return False
    part = state.GradientState().active_dataloader
    while part is not None and part is not sampler:
        part = getattr(part, "batch_sampler", None)
    return part is sampler


_SAMPLING: TypeAdapter[Sampling] = TypeAdapter(Sampling)


def _sampling(options: Mapping[str, Any]) -> Sampling:
    try:
        return _SAMPLING.validate_python(options)
    except ValidationError as error:
        details = error.errors()[0]
        name = str((details["loc"] or ("order",))[-1])
        if details["type"] == "extra_forbidden":
            raise ConfigError(
                f"{name}={details['input']!r} has no effect with order={options['order']!r}",
                "leave it out",
                parameter=name,
            ) from None
        sentence = f"{name}={options.get(name)!r}: {details['msg']}"
        raise ConfigError(sentence, parameter=name) from None


def process_of_all() -> tuple[int, int]:
    """Number of this process of `torch.distributed`, and of all; 0 and 1 where there is one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
