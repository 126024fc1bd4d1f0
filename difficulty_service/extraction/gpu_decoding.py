"""The JPEGs of a batch, decoded and resized on the GPU that encodes them."""

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import ImageError
from difficulty_service.extraction.batches import (
    DECODE_ON_GPU,
    Batch,
    SampledOnGpu,
    stack_samples,
    views_of,
)
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.features.errors_file import BadImage
from difficulty_service.images.appearance import sample_pixels
from difficulty_service.images.nvjpeg import EncodedJpegs, JpegDecoder
from difficulty_service.images.preparation import decode, pixels_of
from difficulty_service.images.resizing import to_tensor


@dataclass(frozen=True)
class _DecodedImage:
    """What is kept of a decoded image.

    Attributes:
        views: Each of shape (3, height, width).
        levels: As `SampledPixels.levels`.
    """

    shape: tuple[int, int]
    views: Sequence[Tensor]
    levels: Tensor


@dataclass(frozen=True)
class GpuDecoding:
    """What decodes the JPEGs of batches.

    Attributes:
        preprocessing: What the network sees of an image.
        options: How the other images are decoded.
        clock: Measures how long it takes; None to measure nothing.
    """

    preprocessing: Preprocessing
    options: ExtractOptions
    decoder: JpegDecoder
    clock: StageClock | None = None

    def decode(self, batch: Batch) -> Batch:
        """The batch with views of all its new images on the GPU, in their order."""
        if batch.jpegs is None:
            return batch
        timed = self.clock.busy(DECODE_ON_GPU) if self.clock else nullcontext()
        with timed, self.decoder.beside() as hand_on:
            seen, bad = self._see(batch, batch.jpegs)
            kept = [row for row in range(len(batch.new)) if row not in bad]
            images = self._images(batch.values, kept, seen)
            mine = [seen[row] for row in kept if row in seen]
            return replace(
                batch,
                new=[batch.new[row] for row in kept],
                bad=[*batch.bad, *bad.values()],
                values=hand_on(stack_samples([*chain(*images)])) if images else None,
                jpegs=None,
                sampled=_sampled(mine, [row in seen for row in kept], hand_on) if mine else None,
            )

    def _see(
        self, batch: Batch, jpegs: EncodedJpegs
    ) -> tuple[dict[int, _DecodedImage], dict[int, BadImage]]:
        """What is seen of each JPEG by its row, and those that cannot be decoded."""
        seen: dict[int, _DecodedImage] = {}
        bad: dict[int, BadImage] = {}
        for place, pixels in self.decoder.decode(jpegs):
            image = batch.new[place.image]
            try:
                seen[place.image] = self._see_one(image.sample_id, pixels, jpegs.encoded(place))
            except ImageError as error:
                reason = BadImage(image.sample_id, str(error), image.content, image.stamp)
                bad[place.image] = reason
        return seen, bad

    def _see_one(self, sample_id: str, pixels: Tensor | None, encoded: Tensor) -> _DecodedImage:
        """What is seen of a JPEG; the CPU decodes what the GPU did not, and says why it cannot."""
        if pixels is not None:
            with suppress(torch.OutOfMemoryError):
                return self._views(sample_id, pixels, self.decoder.sample(pixels))
            torch.cuda.empty_cache()
        decoded = decode(partial(io.BytesIO, encoded.numpy().tobytes()), *self.options.reading)
        levels = torch.from_numpy(sample_pixels(pixels_of(decoded)).levels)
        return self._views(sample_id, to_tensor(decoded), levels)

    def _views(self, sample_id: str, pixels: Tensor, levels: Tensor) -> _DecodedImage:
        _, height, width = pixels.shape
        views = views_of(sample_id, pixels, self.preprocessing, self.options)
        device = self.decoder.device
        return _DecodedImage(
            (height, width), [send(view, device) for view in views], send(levels, device)
        )

    def _images(
        self, values: Tensor | None, kept: Sequence[int], seen: Mapping[int, _DecodedImage]
    ) -> list[Sequence[Tensor]]:
        """The views of each image that is kept, of which the CPU has decoded some."""
        runs = len(self.options.run_numbers)
        by_cpu = iter(() if values is None else send(values, self.decoder.device).split(runs))
        return [seen[row].views if row in seen else tuple(next(by_cpu)) for row in kept]


def _sampled(
    seen: Sequence[_DecodedImage], is_mine: Sequence[bool], hand_on: Callable[[Tensor], Tensor]
) -> SampledOnGpu:
    levels = hand_on(torch.stack([each.levels for each in seen]))
    return SampledOnGpu(np.array(is_mine), [each.shape for each in seen], levels)
