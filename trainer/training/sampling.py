"""Batches in an order by difficulty, for data loaders; resumable, and shared among processes."""

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
    `load_state_dict`. Every pass over the sampler is one epoch. Among several processes each gets
    its share of every batch: shares differ by at most one sample, and no sample is there twice.
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
                `torch.distributed`.

        Raises:
            ConfigError: An option is unknown, wrong or without effect.
            ValueError: Difficulties are not finite, or a process would get nothing of a batch.
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
        self.difficulty, self.batch_size, self.seed = difficulty, batch_size, seed
        self.epochs = 1 if epochs is None else epochs
        self.rank, self.processes = process_of_all() if process is None else process
        smallest = len(difficulty) // len(self)
        if smallest < self.processes:
            raise ValueError(
                f"batches of {smallest} samples for {self.processes} processes; make batch_size "
                "larger"
            )
        self.epoch = self.batch = 0

    def __len__(self) -> int:
        """Number of batches of every epoch."""
        return -(-len(self.difficulty) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """The remaining batches of the epoch, this process's share of each."""
        plan = plan_by_difficulty(
            self.difficulty, self.batch_size, self.seed, self.epoch, self.epochs, self.sampling
        )
        for batch in plan[self.batch :]:
            self.batch += 1
            yield batch.tensor_split(self.processes)[self.rank].tolist()
        self.epoch, self.batch = self.epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Begins another epoch, counted from zero; does nothing where that one is under way."""
        if epoch != self.epoch:
            self.epoch, self.batch = epoch, 0

    def state_dict(self, batches: int | None = None) -> dict[str, int]:
        """Where the sampler is, for a checkpoint.

        Args:
            batches: Number of batches of this epoch that are done. By default all that were drawn,
                but worker processes of a `DataLoader` draw some ahead.
        """
        return {
            "epoch": self.epoch,
            "batch": self.batch if batches is None else batches,
            "seed": self.seed,
            "samples": len(self.difficulty),
            "batch_size": self.batch_size,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on where a checkpoint was made, on any number of processes.

        Raises:
            ValueError: It was made with other samples or another batch size.
        """
        for name, value in (("samples", len(self.difficulty)), ("batch_size", self.batch_size)):
            if state[name] != value:
                raise ValueError(
                    f"the checkpoint has {name} {state[name]}, and this sampler {value}"
                )
        self.epoch, self.batch, self.seed = state["epoch"], state["batch"], state["seed"]


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
