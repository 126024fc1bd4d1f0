"""Batches that processes read and decode, for a GPU that threads cannot feed.

Threads share Python's lock, which a photograph holds for half a millisecond and more: on any number
of cores they decode one to two thousand a second at most, and a large GPU encodes ten thousand.
"""

import math
import pickle
from collections.abc import Generator, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, get_worker_info

from difficulty_service.backbones.backbone import TextPreprocessing
from difficulty_service.base import apart
from difficulty_service.base.errors import DifficultyError, Setting
from difficulty_service.base.process_setup import keep_freed_memory
from difficulty_service.base.wording import list_names
from difficulty_service.extraction.batches import Batch, Group, Preparation, prepare_batch
from difficulty_service.extraction.image_slots import ImageSlot, ImageSlots
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.extraction.memory import fits_processes
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.images.nvjpeg import MOST_BYTES
from difficulty_service.images.preparation import set_up_decoding_thread

LEAST_IMAGES = 8192
"""Number of images from which on processes are worth the seconds that they take to start."""

LEAST_WORKERS = 3
"""Number of cores up to which threads decode as fast."""

BATCHES_AHEAD = 2
"""Batches that each process has under way or ready."""

Prepared = tuple[Batch, dict[str, float]]
"""A batch, and the seconds of each stage that it took."""


def processes_pay(how: Preparation, num_images: int, batch_size: int, workers: int) -> bool:
    """Whether that many processes prepare so many images sooner than threads, and have the room.

    A text is prepared in no time.
    """
    if isinstance(how.preprocessing, TextPreprocessing):
        return False
    if num_images < LEAST_IMAGES or workers < LEAST_WORKERS:
        return False
    image_bytes = 3 * math.prod(how.preprocessing.shape)
    if how.options.decodes_on_gpu:
        image_bytes = max(image_bytes, MOST_BYTES)
    return fits_processes(workers, workers * BATCHES_AHEAD * batch_size * image_bytes)


def can_be_sent(group: Group) -> bool:
    """Whether another process can open the samples of a group.

    It cannot where a program holds them, or where they are opened by a function of the script that
    runs.
    """
    try:
        return b"__main__" not in pickle.dumps([sample.open for sample in group.samples])
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


@dataclass
class KeptProcesses:
    """Processes that decode for one call of `prepared_apart` after another, of one task.

    Attributes:
        num_images: Number of images of all calls together.
        processes: The processes; None until the first call, and after one that failed.
    """

    num_images: int
    processes: "Processes | None" = None


class Processes:
    """Processes that read and decode groups, until nothing refers to this any more.

    Args:
        how: How they prepare a group; its watch is that of this process.
        timed: Whether they measure how long each stage takes.
        pins: Whether a thread moves the batches to pinned memory.
    """

    def __init__(self, how: Preparation, workers: int, *, timed: bool, pins: bool) -> None:
        self.slots = ImageSlots.of(workers) if how.watch else None
        self._groups = _Pickled()
        self._loader: DataLoader[Prepared] = DataLoader(
            cast("Any", _Preparer(replace(how, watch=None), timed, self.slots)),
            batch_size=None,  # a group is already a batch
            sampler=cast("Any", self._groups),
            num_workers=workers,
            prefetch_factor=BATCHES_AHEAD,
            collate_fn=cast("Any", _unchanged),
            pin_memory=pins,
            worker_init_fn=_set_up,
            persistent_workers=True,
            multiprocessing_context=apart.context_of_children,
            generator=torch.Generator(),  # leaves the state of the global generator as it is
        )

    def prepare(self, groups: Iterable[Group]) -> Iterator[Prepared]:
        """Begins to prepare groups; the ones before must all have been taken."""
        self._groups.groups = groups
        with apart.without_main():
            return iter(self._loader)


def prepared_apart(
    groups: Iterable[Group],
    how: Preparation,
    workers: int,
    clock: StageClock | None,
    *,
    pins: bool = False,
    kept: KeptProcesses | None = None,
) -> Generator[Batch, None, None]:
    """Reads and decodes groups in processes, in order; closing the generator ends the processes.

    Args:
        pins: Whether a thread moves the batches to pinned memory.
        kept: Holds the processes afterwards; None to end them.

    Raises:
        DifficultyError: A process was ended, such as for lack of memory.
    """
    running = kept.processes if kept else None
    running = running or Processes(how, workers, timed=clock is not None, pins=pins)
    if kept:
        kept.processes = None  # until all that was begun has been taken
    watch = how.watch if isinstance(how.watch, ImageWatch) else None
    prepared = running.prepare(groups)
    try:
        with watch.beside(running.slots) if watch and running.slots else nullcontext():
            for batch, seconds in prepared:
                for stage, busy in seconds.items():
                    if clock:
                        clock.add(stage, busy)
                yield batch
        if kept:
            kept.processes = running
    except (RuntimeError, EOFError, ConnectionError) as error:
        if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
            raise
        # The loader notices it, or meets its closed connection first.
        reading = "" if running.slots is None else _reading(running.slots)
        raise DifficultyError(
            f"a process that decodes images has ended ({error or type(error).__name__}); it may "
            f"have lacked memory{reading}",
            "use fewer of them by ",
            Setting("workers", max(1, workers // 2)),
            parameter="workers",
        ) from ChildProcessError(str(error))  # an OSError: the service tries such a job again
    finally:
        del prepared, running  # ends the processes, unless they are kept


def _reading(slots: ImageSlots) -> str:
    names = [image.sample_id for image in slots.under_way()]
    return f"; images that were being read: {list_names(names)}" if names else ""


@dataclass
class _Pickled:
    """Groups as bytes: one that cannot be pickled raises here and not in a thread of the loader."""

    groups: Iterable[Group] = ()

    def __iter__(self) -> Iterator[bytes]:
        return (pickle.dumps(group) for group in self.groups)


@dataclass(frozen=True)
class _Preparer:
    """Prepares groups in a process; as a dataset of `DataLoader`, indexed by a pickled group."""

    how: Preparation
    timed: bool
    slots: ImageSlots | None

    def __getitem__(self, pickled: bytes) -> Prepared:
        clock = StageClock() if self.timed else None
        group = pickle.loads(pickled)  # noqa: S301 - of our own making
        process = get_worker_info()
        watch = None
        if self.slots is not None and process is not None:
            watch = ImageSlot(self.slots, process.id)
        batch = prepare_batch(group, replace(self.how, watch=watch), clock)
        return batch, {stage.name: stage.busy for stage in clock.stages()} if clock else {}


def _unchanged(prepared: Prepared) -> Prepared:
    return prepared


def _set_up(_number: int) -> None:
    keep_freed_memory()
    set_up_decoding_thread()
