"""The image that each of some decoding processes is working on, in memory that they share."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.extraction.image_watch import ImageUnderWay

NAME_BYTES = 256
"""Bytes of a sample id that are kept; what comes after is cut off."""


@dataclass(frozen=True)
class ImageSlots:
    """A slot for each process, which it alone writes and the process that started it reads.

    Attributes:
        began: Monotonic seconds at which its image was begun, 0 while there is none. Shape
            (processes,), float64.
        stepped: The same of when it began or finished an image last. Shape (processes,), float64.
        names: Ids of the samples in UTF-8, filled with zeros. Shape (processes, bytes), uint8.
    """

    began: Tensor
    stepped: Tensor
    names: Tensor

    @classmethod
    def of(cls, processes: int) -> "ImageSlots":
        """Empty slots of so many processes."""
        began, stepped = torch.zeros(2, processes, dtype=torch.float64)
        names = torch.zeros(processes, NAME_BYTES, dtype=torch.uint8)
        return cls(*(each.clone().share_memory_() for each in (began, stepped, names)))

    def under_way(self) -> list[ImageUnderWay]:
        """The images under way, in the order of the processes."""
        now = time.monotonic()
        began = self.began.tolist()
        names = [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in self.names.tolist()]
        # A process that has gone on meanwhile has perhaps written half of another name.
        return [
            ImageUnderWay(name, now - since)
            for name, since, again in zip(names, began, self.began.tolist(), strict=True)
            if since and since == again
        ]

    @property
    def last_step(self) -> float:
        """Monotonic time at which an image was begun or finished last; 0 if none was."""
        return float(self.stepped.max())


@dataclass(frozen=True)
class ImageSlot:
    """The slot of this process, as a watch of it."""

    slots: ImageSlots
    process: int

    @contextmanager
    def working_on(self, sample_id: str) -> Iterator[None]:
        """Counts an image as under way within the context."""
        began, stepped = self.slots.began, self.slots.stepped
        name = sample_id.encode(errors="replace")[:NAME_BYTES].ljust(NAME_BYTES, b"\0")
        self.slots.names[self.process] = torch.frombuffer(bytearray(name), dtype=torch.uint8)
        stepped[self.process] = began[self.process] = time.monotonic()
        try:
            yield
        finally:
            began[self.process] = 0
            stepped[self.process] = time.monotonic()
