"""One batch of images on its way to features: read, decoded, encoded."""

import io
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.backbones.backbone import (
    Backbone,
    BackboneOptions,
    Preprocessing,
    TextPreprocessing,
)
from difficulty_service.base.device_copies import begin_fetch_all, send
from difficulty_service.base.device_memory import Room
from difficulty_service.base.errors import ImageError
from difficulty_service.base.files import content_digest, file_stamp
from difficulty_service.datasets.sample import ImageOpener, Sample
from difficulty_service.extraction.image_watch import Watch
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.known_images import KnownImages
from difficulty_service.images.appearance import SampledPixels, measure, sample_pixels
from difficulty_service.images.nvjpeg import EncodedJpegs, JpegCollector
from difficulty_service.images.preparation import (
    decode,
    normalise,
    pixels_of,
    stack,
    to_view,
)
from difficulty_service.images.resizing import DecodedImage
from difficulty_service.images.views import to_views

MAX_TEXT_BYTES = 2_000_000
"""Largest size of a text, of which an encoder needs many times its memory."""

READ, DECODE, FORWARD, APPEND = "read", "decode and resize", "normalise and forward", "append"
DECODE_ON_GPU = "decode on the GPU"


@dataclass(frozen=True)
class Image:
    """An image that could be read, now or by an earlier run.

    Attributes:
        stamp: Stamp of its file; None where it is not a file of its own.
        known_row: Row of its features among those of earlier runs; None for a new image.
    """

    sample_id: str
    label: int
    content: bytes
    stamp: int | None
    known_row: int | None = None


@dataclass(frozen=True)
class Group:
    """Some samples of one shard before they are read; `reused` and `bad` have not changed."""

    shard: int
    samples: list[Sample]
    reused: list[Image] = field(default_factory=list)
    bad: list[BadImage] = field(default_factory=list)


@dataclass(frozen=True)
class Preparation:
    """How samples are read and decoded, in any thread or process.

    Attributes:
        known: Images whose features are known from an earlier run; None if there are none.
        watch: Is told which images are being read and decoded; None to tell nobody.
    """

    preprocessing: Preprocessing | TextPreprocessing
    options: ExtractOptions
    known: KnownImages | None
    watch: Watch | None

    @classmethod
    def of(cls, task: ExtractionTask, backbone: Backbone) -> Self:
        """That of a task, for a backbone."""
        return cls(backbone.preprocessing, task.options, task.known, task.watch)


@dataclass(frozen=True)
class SampledOnGpu:
    """Pixels of images that a GPU has decoded, of which `measure` needs those on the CPU.

    Attributes:
        is_mine: Which images of the batch they are of. Shape (images of the batch,).
        shapes: Height and width of each image.
        levels: As `SampledPixels.levels`, on the GPU. Shape (images, …).
    """

    is_mine: NDArray[np.bool_]
    shapes: Sequence[tuple[int, int]]
    levels: Tensor

    def complete(self, numbers: NDArray[np.float32] | None, levels: Tensor) -> NDArray[np.float32]:
        """The numbers of all images of a batch, those of the others given in order."""
        seen = zip(self.shapes, levels.numpy(), strict=True)
        mine = measure([SampledPixels(*shape, each) for shape, each in seen])
        if numbers is None:
            return mine
        whole = np.empty((len(self.is_mine), mine.shape[1]), np.float32)
        whole[self.is_mine], whole[~self.is_mine] = mine, numbers
        return whole


@dataclass(frozen=True)
class Batch:
    """Some samples of one shard, in order, on their way through the network.

    Attributes:
        values: Before encoding, uint8 views of the new images, shape
            (images * runs, 3, height, width); afterwards their features, shape
            (images * runs, dim). None where no image is new.
        appearance: Numbers of each new image that tell how it looks; None for texts.
            Shape (images, numbers).
        jpegs: New images that a GPU is to decode, of which `values` and `appearance` have no rows
            before; None for none.
        sampled: Pixels of those, by which `appearance` is completed once they are fetched.
    """

    shard: int
    new: list[Image]
    reused: list[Image]
    bad: list[BadImage]
    values: Tensor | None
    appearance: NDArray[np.float32] | None = None
    jpegs: EncodedJpegs | None = None
    sampled: SampledOnGpu | None = None

    @property
    def num_images(self) -> int:
        """Number of all images, bad ones included."""
        return len(self.new) + len(self.reused) + len(self.bad)

    def pin_memory(self) -> Self:
        """The batch with its values in pinned memory; `DataLoader` calls it by this name."""
        return replace(self, values=self.values.pin_memory()) if self.values is not None else self


def make_group(shard: int, samples: list[Sample], known: KnownImages | None) -> Group:
    """A group of samples, of which those that have not changed need not be read."""
    if known is None:
        return Group(shard, samples)
    group = Group(shard, [])
    for sample in samples:
        stamp = file_stamp(sample.file) if sample.file else None
        row = known.find_stamp(stamp, sample.sample_id)
        if row is None:
            group.samples.append(sample)
            continue
        image = Image(sample.sample_id, sample.label, known.content(row), stamp, row)
        _add_known(image, known, group.reused, group.bad)
    return group


def prepare_batch(group: Group, how: Preparation, clock: StageClock | None) -> Batch:
    """Reads the samples of a group and decodes those whose features are not known."""
    batch = Batch(group.shard, [], list(group.reused), list(group.bad), None)
    views: list[Tensor] = []
    sampled: list[SampledPixels] = []
    jpegs = JpegCollector() if how.options.decodes_on_gpu else None
    began, read_before = time.perf_counter(), clock.seconds_here(READ) if clock else 0.0
    for sample in group.samples:
        opener = clock.reading(sample.open, READ) if clock else sample.open
        with how.watch.working_on(sample.sample_id) if how.watch else nullcontext():
            views += _prepare_sample(replace(sample, open=opener), how, batch, sampled, jpegs)
    appearance = measure(sampled) if sampled else None
    if clock:
        reading = clock.seconds_here(READ) - read_before
        clock.add(DECODE, time.perf_counter() - began - reading)
    values = stack_samples(views) if views else None
    left = jpegs.collected() if jpegs else None
    return replace(batch, values=values, appearance=appearance, jpegs=left)


def stack_samples(views: list[Tensor]) -> Tensor:
    """Stacks prepared samples: views of images as by `stack`, or texts of shape (length,)."""
    return stack(views) if views[0].ndim > 1 else torch.stack(views)


def read_text(opener: ImageOpener) -> bytes:
    """Reads a whole text as UTF-8.

    Raises:
        ImageError: The text is too long, or cannot be read.
    """
    with opener() as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise ImageError(f"the text has more than the {MAX_TEXT_BYTES:,} bytes allowed")
    return data


def _prepare_sample(
    sample: Sample,
    how: Preparation,
    batch: Batch,
    sampled: list[SampledPixels],
    jpegs: JpegCollector | None,
) -> Iterable[Tensor]:
    """Adds a sample to a batch; gives its views, none where its features are known or it is bad.

    Some pixels of an image with views are added to `sampled`. One that a GPU decodes is added to
    `jpegs` and has no views yet.
    """
    # Before the image is read: a file that changes meanwhile is read again next time.
    stamp = file_stamp(sample.file) if sample.file else None
    content = None
    try:
        is_text = isinstance(how.preprocessing, TextPreprocessing)
        data = read_text(sample.open) if is_text else how.options.read(sample.open)
        content = content_digest(data)
        row = how.known.find_content(content, sample.sample_id) if how.known else None
        image = Image(sample.sample_id, sample.label, content, stamp, row)
        if how.known and row is not None:
            _add_known(image, how.known, batch.reused, batch.bad)
            return []
        views: Iterable[Tensor] = ()
        if not (jpegs and jpegs.add(data, how.options.max_pixels, len(batch.new))):
            views = _views(sample.sample_id, data, how, sampled)
    except ImageError as error:
        batch.bad.append(BadImage(sample.sample_id, str(error), content, stamp))
        return []
    batch.new.append(image)
    return views


def _add_known(image: Image, known: KnownImages, reused: list[Image], bad: list[BadImage]) -> None:
    reason = known.reason(image.known_row) if image.known_row is not None else None
    if reason is None:
        reused.append(image)
    else:
        bad.append(BadImage(image.sample_id, reason, image.content, image.stamp))


def _views(
    sample_id: str, data: bytes, how: Preparation, sampled: list[SampledPixels]
) -> Iterable[Tensor]:
    """Views of one image, each of shape (3, height, width); or the numbers of one text."""
    if isinstance(how.preprocessing, TextPreprocessing):
        return [how.preprocessing.prepare(data.decode())]
    opener: ImageOpener = partial(io.BytesIO, data)
    decoded = decode(opener, *how.options.reading)
    seen = sample_pixels(pixels_of(decoded))  # first, while the pixels are in the cache
    views = views_of(sample_id, decoded, how.preprocessing, how.options)
    sampled.append(seen)
    return views


def views_of(
    sample_id: str, decoded: DecodedImage, preprocessing: Preprocessing, options: ExtractOptions
) -> Iterable[Tensor]:
    """Views of one decoded image, where that is. Each of shape (3, height, width).

    Raises:
        ImageError: It is too elongated.
    """
    if options.augmentation is None:
        return [to_view(decoded, preprocessing, options.max_pixels)]
    return to_views(decoded, preprocessing, sample_id, options.augmentation, options.max_pixels)


def encode_batch(
    batch: Batch,
    backbone: Backbone,
    network: BackboneOptions,
    clock: StageClock | None,
    room: Room,
) -> Batch:
    """Normalises the views of a batch and turns them into features, on the backbone's device."""
    if batch.values is None:
        return batch
    preprocessing = backbone.preprocessing

    def encode(samples: Tensor) -> Tensor:
        if not isinstance(preprocessing, TextPreprocessing):
            views = send(samples, network.device)
            samples = normalise(views, preprocessing, network.input_precision)
        return backbone.encode(samples).float()

    with clock.busy(FORWARD) if clock else nullcontext():
        return replace(batch, values=room.compute(encode, batch.values))


def begin_fetch_batch(batch: Batch, clock: StageClock | None) -> Callable[[], Batch]:
    """Begins to copy the features of a batch to the CPU.

    Returns:
        What waits for the features and gives the batch with them.
    """
    if batch.values is None:
        return lambda: batch
    sampled = batch.sampled
    fetch = begin_fetch_all([batch.values, *([sampled.levels] if sampled else [])])

    def fetch_batch() -> Batch:
        with clock.busy(FORWARD) if clock else nullcontext():
            values, *levels = fetch()
        if not sampled:
            return replace(batch, values=values)
        appearance = sampled.complete(batch.appearance, *levels)
        return replace(batch, values=values, appearance=appearance, sampled=None)

    return fetch_batch
