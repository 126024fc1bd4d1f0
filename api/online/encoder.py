"""Encodes single images or texts with the backbone of a finished job.

Batches the samples of concurrent requests for one backbone.

Requests queue up while the device runs a batch; the next batch takes what is in the queue. So no
request waits for others, and a busy service still runs full batches.
"""

import io
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import torch
from PIL import Image
from torch import Tensor

from api.bounded_cache import BoundedCache
from api.http.problems import Problem
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import (
    Backbone,
    BackboneOptions,
    TextPreprocessing,
    image_preprocessing,
    unemulated,
)
from difficulty_service.base.device_copies import send
from difficulty_service.base.device_memory import Room
from difficulty_service.base.devices import current
from difficulty_service.base.errors import ImageError
from difficulty_service.base.threads import num_workers
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.extraction.batches import read_text, stack_samples
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.extraction.schedules import suitable_batch_size
from difficulty_service.features.description import FeatureDescription
from difficulty_service.images.pixels import Pixels
from difficulty_service.images.preparation import normalise, prepare, set_up_decoding_thread
from difficulty_service.scoring.pipeline import make_plan
from difficulty_service.settings.machine import RunOptions
from difficulty_service.settings.run import Run


@dataclass(frozen=True)
class Submission:
    """Prepared samples of one request and the future of their features."""

    samples: Tensor
    features: "Future[Tensor]"


class Batcher:
    """A thread that runs a backbone on batches.

    Args:
        encode: Gives features, of shape (samples, dim), of prepared samples: uint8 views of images,
            of shape (samples, 3, height, width), or texts, of shape (samples, length).
        batch_size: Maximum number of samples in a pass; only a single larger submission exceeds it.
    """

    def __init__(self, encode: Callable[[Tensor], Tensor], batch_size: int) -> None:
        self._encode = encode
        self._batch_size = batch_size
        self._queue: queue.Queue[Submission | None] = queue.Queue()
        self._remainder: Submission | None = None
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, samples: Tensor) -> "Future[Tensor]":
        """Queues samples, which stay together in one pass.

        Args:
            samples: Prepared samples, as `encode` takes them. Shape (samples, ...).

        Returns:
            Future of the features, of shape (samples, dim).
        """
        submission = Submission(samples, Future())
        self._queue.put(submission)
        return submission.features

    def close(self) -> None:
        """Ends the thread after the submissions that are queued already."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            try:
                with torch.inference_mode():
                    rows = self._encode(torch.cat([each.samples for each in batch]))
            except Exception as error:  # noqa: BLE001 - every error goes to the callers
                for each in batch:
                    each.features.set_exception(error)
                continue
            parts = rows.split([len(each.samples) for each in batch])
            for each, part in zip(batch, parts, strict=True):
                each.features.set_result(part)

    def _take(self) -> list[Submission]:
        """Waits for a submission, then takes all that are queued and fit; empty at the end."""
        submission = self._remainder or self._queue.get()
        self._remainder = None
        batch: list[Submission] = []
        room = self._batch_size
        while submission is not None:
            room -= len(submission.samples)
            if batch and room < 0:
                self._remainder = submission
                return batch
            batch.append(submission)
            try:
                submission = self._queue.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            # The end mark came after samples that must still be encoded.
            self._queue.put(None)
        return batch


IMAGES_PER_TASK = 4
"""Number of images that a thread decodes per task, so that the overhead of a task is small."""


@dataclass(frozen=True)
class RunningBackbone:
    """A backbone and the thread that runs it."""

    backbone: Backbone
    batcher: Batcher


class BackbonePool:
    """Backbones that are loaded on first use, each with a thread that batches its images.

    Args:
        machine: The device, and which images are refused; samples are encoded in this process.
    """

    def __init__(self, machine: RunOptions, capacity: int = 2) -> None:
        here = machine.model_copy(update={"engine": "local"})
        plan = make_plan(Run(machine=here))
        self._device, self._options = plan.network.device, plan.options
        self._downloads = plan.network.downloads
        self._backbones: BoundedCache[tuple[str, ...], RunningBackbone] = BoundedCache(
            capacity, on_evict=lambda running: running.batcher.close()
        )
        # Read before a decoder lowers it for itself and for every later thread.
        self._torch_threads = torch.get_num_threads()
        self.watch = ImageWatch()
        """Images that are being decoded."""
        # One pool for all requests: with one each, eight requests would use eight times the cores.
        self._decoders = ThreadPoolExecutor(
            num_workers(), thread_name_prefix="decoder", initializer=set_up_decoding_thread
        )

    def encode(
        self, openers: Sequence[ImageOpener], description: FeatureDescription
    ) -> list[Tensor | str]:
        """Features of images or texts, computed like those of a job.

        Args:
            openers: Functions that open one image file, or one text as UTF-8, each.
            description: Description of the features of the job, which says which of the two.

        Returns:
            For each sample its features of shape (dim,), or the reason why it cannot be read.

        Raises:
            Problem: The weights of the backbone are not those that the job used.
        """
        running = self._running_backbone(description)
        preprocessing = running.backbone.preprocessing
        reading = replace(
            self._options,
            preprocess=description.mode or "fast",
            pixels=Pixels.of(description.preprocessing),
        ).reading

        def view(opener: ImageOpener) -> Tensor | str:
            try:
                if isinstance(preprocessing, TextPreprocessing):
                    return preprocessing.prepare(read_text(opener).decode())
                with self.watch.working_on("image"):
                    return prepare(opener, preprocessing, *reading)
            except ImageError as error:
                return error.problem

        encoded: list[tuple[list[Tensor | str], Future[Tensor] | None]] = []
        for views in self._decoded(view, openers):
            readable = [each for each in views if isinstance(each, Tensor)]
            # The backbone encodes these while the next are decoded.
            features = running.batcher.submit(stack_samples(readable)) if readable else None
            encoded.append((views, features))
        results: list[Tensor | str] = []
        for views, features in encoded:
            rows = iter(features.result()) if features is not None else iter(())
            results += [each if isinstance(each, str) else next(rows) for each in views]
        return results

    def _decoded(
        self, view: Callable[[ImageOpener], Tensor | str], openers: Sequence[ImageOpener]
    ) -> Iterator[list[Tensor | str]]:
        """Prepared images, a task at a time, in order."""
        starts = range(0, len(openers), IMAGES_PER_TASK)
        groups = iter([openers[start : start + IMAGES_PER_TASK] for start in starts])

        def decode(group: Sequence[ImageOpener]) -> list[Tensor | str]:
            return [view(opener) for opener in group]

        # A few tasks at a time, so that a single image need not wait for a large request.
        pending = deque(
            self._decoders.submit(decode, group) for group in islice(groups, num_workers() + 1)
        )
        while pending:
            views = pending.popleft().result()
            pending.extend(self._decoders.submit(decode, group) for group in islice(groups, 1))
            yield views

    def close(self) -> None:
        """Ends the threads."""
        self._decoders.shutdown()
        self._backbones.clear()

    def _running_backbone(self, description: FeatureDescription) -> RunningBackbone:
        options = BackboneOptions.as_described(description, self._device)
        # A job may have had a GPU, or another processor. In float32 the ranks are the same.
        precision = unemulated(options.precision, self._device)
        options = replace(options, precision=precision, downloads=self._downloads)
        key = str(description.backbone), str(options)
        running = self._backbones.get(key, lambda: self._load(description, options))
        if running.backbone.weights_sha256 != description.weights_sha256:
            raise Problem(
                409,
                "conflict",
                f"the weights of {description.backbone!r} are not those that the job used",
                "score the dataset again as a new job, or send feature vectors",
            )
        return running

    def _load(self, description: FeatureDescription, options: BackboneOptions) -> RunningBackbone:
        backbone = load_backbone(str(description.backbone), options)
        if isinstance(backbone.preprocessing, TextPreprocessing):
            return self._running(backbone, lambda texts: texts)
        # What resizing imports takes seconds, which are not those of the first image.
        preprocessing = image_preprocessing(backbone)
        prepare(_one_pixel, preprocessing, description.mode or "fast")
        return self._running(
            backbone,
            lambda views: normalise(
                send(views, self._device), preprocessing, options.input_precision
            ),
        )

    def _running(self, backbone: Backbone, place: Callable[[Tensor], Tensor]) -> RunningBackbone:
        """A backbone with its thread; `place` makes its input of prepared samples."""
        room = Room(self._device)

        def encode(samples: Tensor) -> Tensor:
            torch.set_num_threads(self._torch_threads)  # for the thread of the batcher
            with current(self._device):
                return room.compute(
                    lambda some: backbone.encode(place(some)).float().cpu(), samples
                )

        return RunningBackbone(
            backbone, Batcher(encode, suitable_batch_size(self._device, backbone))
        )


def _one_pixel() -> io.BytesIO:
    """The file of an image."""
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "PNG")
    file.seek(0)
    return file
