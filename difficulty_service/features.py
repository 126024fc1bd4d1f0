"""One shard of a dataset through a backbone: images in, one part of a feature store out."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from difficulty_service.backbones.backbone import Backbone
from difficulty_service.datasets.sample import Dataset, Sample
from difficulty_service.errors import BackboneError, ImageError
from difficulty_service.feature_store import BadImage, Part
from difficulty_service.images import (
    DEFAULT_MAX_PIXELS,
    Augmentation,
    Mode,
    begin_decoding,
    normalise,
    prepare,
    prepare_runs,
)
from difficulty_service.parallel import map_in_order

IMAGES_PER_TASK = 16
"""Images that a worker thread prepares at a time: enough to make the hand-over cheap."""

Progress = Callable[[int, int], None]
"""Called with the number of samples done and the number of bad images among them."""


def ignore(_done: int, _bad: int) -> None:
    """The progress that nobody looks at."""


@dataclass(frozen=True)
class ExtractOptions:
    """How images become features.

    Attributes:
        batch_size: Images in one forward pass; None for what suits the device.
        augment_runs: Randomly augmented passes over each image; 0 for one plain pass.
        seed: Of the augmentation.
        mode: `fast` or `exact` preprocessing.
        max_pixels: Larger images are refused.
        stop_on_error: End at the first bad image instead of listing it.
        workers: Threads that read and decode.
        device: Where the backbone is.
        precision: dtype of the backbone's input.
    """

    batch_size: int | None = None
    augment_runs: int = 0
    seed: int = 0
    mode: Mode = "fast"
    max_pixels: int = DEFAULT_MAX_PIXELS
    stop_on_error: bool = False
    workers: int = 2
    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32


@dataclass(frozen=True)
class PreparedSample:
    """A sample's views as uint8 (runs, 3, size, size), or the reason why there are none."""

    sample: Sample
    views: Tensor | None
    reason: str = ""


def extract_shard(
    dataset: Dataset,
    shard: int,
    backbone: Backbone,
    options: ExtractOptions,
    progress: Progress = ignore,
) -> tuple[Part, list[BadImage]]:
    """Features of all readable images of a shard, in order, and the images that are not.

    A batch never crosses the border of a shard, so a shard's features do not depend on what was
    extracted before it.

    Raises:
        ImageError: An image is bad and the options say to stop; the message names it.
    """
    kept: list[Sample] = []
    bad: list[BadImage] = []
    features: list[Tensor] = []
    batch_size = options.batch_size or suitable_batch_size(options.device, backbone)
    images_per_batch = max(1, batch_size // max(1, options.augment_runs))
    # Closing ends the worker threads at once, also where an error or a key press ends this.
    with closing(_prepare_all(dataset.read_shard(shard), backbone, options)) as prepared:
        while group := list(islice(prepared, images_per_batch)):
            good = [item for item in group if item.views is not None]
            failed = [
                BadImage(item.sample.sample_id, item.reason) for item in group if item.views is None
            ]
            if failed and options.stop_on_error:
                raise ImageError(
                    f"{failed[0].sample_id} in {dataset.location}: {failed[0].reason}; "
                    "--on-error skip lists such images and goes on"
                )
            if good:
                views = torch.cat([item.views for item in good if item.views is not None])
                features.append(_encode(views, backbone, options))
            kept += [item.sample for item in good]
            bad += failed
            progress(len(group), len(failed))
    return _part(kept, features, backbone.feature_dim, options.augment_runs), bad


def suitable_batch_size(device: torch.device, backbone: Backbone) -> int:
    """Many images for a GPU; on a CPU as few as keep activations in its cache and heap.

    A CPU takes half as long for MobileNetV2 in batches of 8 as of 256, whose activations are
    fresh memory in every layer.
    """
    if device.type != "cpu":
        return 256
    return 32 if backbone.preprocessing.size <= 64 else 8  # noqa: PLR2004


def _prepare_all(
    samples: Iterable[Sample], backbone: Backbone, options: ExtractOptions
) -> Generator[PreparedSample, None, None]:
    """Reads and decodes on worker threads, a few tasks ahead of the forward pass."""

    def prepare_group(group: list[Sample]) -> list[PreparedSample]:
        return [_prepare_one(sample, backbone, options) for sample in group]

    groups = map_in_order(
        prepare_group, _grouped(samples), options.workers, initializer=begin_decoding
    )
    with closing(groups):
        for group in groups:
            yield from group


def _grouped(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    remaining = iter(samples)
    while group := list(islice(remaining, IMAGES_PER_TASK)):
        yield group


def _prepare_one(sample: Sample, backbone: Backbone, options: ExtractOptions) -> PreparedSample:
    preprocessing = backbone.preprocessing
    try:
        if options.augment_runs:
            augmentation = Augmentation(runs=options.augment_runs, seed=options.seed)
            views = prepare_runs(
                sample.open,
                preprocessing,
                sample.sample_id,
                augmentation,
                options.mode,
                options.max_pixels,
            )
        else:
            views = prepare(sample.open, preprocessing, options.mode, options.max_pixels)[None]
    except ImageError as error:
        return PreparedSample(sample, None, str(error))
    return PreparedSample(sample, views)


def _encode(views: Tensor, backbone: Backbone, options: ExtractOptions) -> Tensor:
    try:
        images = normalise(views.to(options.device), backbone.preprocessing, options.precision)
        return backbone.encode(images).float().cpu()
    except torch.OutOfMemoryError:
        raise BackboneError(
            f"{options.device} has too little memory for {len(views)} images at once; "
            f"use --batch-size {max(1, len(views) // 2)}"
        ) from None


def _part(samples: list[Sample], features: list[Tensor], dim: int, augment_runs: int) -> Part:
    numbers = range(1, augment_runs + 1) if augment_runs else [0]
    labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
    return Part(
        sample_ids=[sample.sample_id for sample in samples for _ in numbers],
        labels=labels.repeat_interleave(len(numbers)),
        runs=torch.tensor(list(numbers), dtype=torch.int64).repeat(len(samples)),
        features=torch.cat(features) if features else torch.empty(0, dim),
    )
