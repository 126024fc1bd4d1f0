"""How many images a second a backbone takes on this machine, decoding included."""

import io
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.datasets.memory import ImagesInMemory, open_memory
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.schedules import suitable_batch_size
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions

HEIGHT, WIDTH = 400, 500
"""Size of the measured photographs in pixels, about the mean of those of ImageNet."""

QUALITY = 90
NUM_PHOTOS = 16
SECONDS = 3.0
"""Time that a measurement takes, besides one batch before it."""

MOST_IMAGES = 1 << 14


@dataclass(frozen=True)
class Speed:
    """The measured speed of a backbone."""

    name: str
    num_images: int
    seconds: float

    @property
    def images_per_second(self) -> float:
        """Images a second."""
        return self.num_images / self.seconds

    def hours(self, num_images: int) -> float:
        """Hours that so many images take."""
        return num_images / self.images_per_second / 3600


def measure_speed(name: str, network: BackboneOptions, seconds: float = SECONDS) -> Speed:
    """Extracts features of photographs in memory, as `difficulty extract` does.

    One batch goes first, in which libraries choose their kernels; its speed decides how many
    batches are measured, at least one.
    """
    backbone = load_backbone(name, network)
    batch_size = suitable_batch_size(network.device, backbone)
    warm_up = _extract(backbone, network, batch_size)
    most = max(batch_size, MOST_IMAGES)
    wanted = min(seconds * warm_up.images_per_second, most)
    return _extract(backbone, network, max(1, math.floor(wanted / batch_size)) * batch_size)


def _extract(backbone: Backbone, network: BackboneOptions, num_images: int) -> Speed:
    photos = sample_photos()
    images = ImagesInMemory(
        lambda position: photos[position % len(photos)],
        [f"image {position}" for position in range(num_images)],
        np.zeros(num_images, np.int32),
        ("",),
    )
    dataset = open_memory(images, "photographs", DatasetOptions(shard_size=num_images))
    task = ExtractionTask(dataset, backbone.name, network, ExtractOptions(stop_on_error=True))
    start = time.perf_counter()
    extract_shard(task, backbone, 0)
    return Speed(backbone.name, num_images, time.perf_counter() - start)


@cache
def sample_photos() -> Sequence[bytes]:
    """JPEG files of coloured clouds with some grain: as large as photographs of that size."""
    generator = np.random.default_rng(0)
    photos = []
    for _ in range(NUM_PHOTOS):
        coarse = generator.integers(0, 256, (10, 12, 3), dtype=np.uint8)
        clouds = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        grain = generator.normal(0, 6, (HEIGHT, WIDTH, 3))
        pixels = (np.asarray(clouds) + grain).clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY)
        photos.append(file.getvalue())
    return photos
