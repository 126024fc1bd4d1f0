"""An extraction task: a dataset, a backbone, and how images become features."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.text_encoders import require_modality
from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.features.description import numbers_of_runs
from difficulty_service.features.known_images import KnownImages
from difficulty_service.images.crops import seen_as
from difficulty_service.images.header import read_encoded
from difficulty_service.images.modes import Mode
from difficulty_service.images.pixels import Pixels
from difficulty_service.images.preparation import (
    DEFAULT_MAX_PIXELS,
    decoder_name,
)
from difficulty_service.images.views import Augmentation, ViewKind

if TYPE_CHECKING:
    from difficulty_service.images.corruptions import Corruption


@dataclass(frozen=True)
class ExtractOptions:
    """Settings by which images become features.

    Attributes:
        batch_size: Number of images in one forward pass; None for what suits the device.
        augment_runs: Number of randomly augmented passes over each image; 0 for one plain pass.
        augmentation_kind: What these passes see of an image.
        corruption: Corruption of every image before anything else; None for none.
        pixels: What is seen of more than eight bits a channel, many bands and pages; None for the
            usual of such images.
        stop_on_error: Whether to end at the first bad image instead of listing it.
        workers: Number of threads that read and decode, and on a CPU also run small networks;
            None for as many as there are cores, or on a cluster for what suits an actor.
    """

    batch_size: int | None = None
    augment_runs: int = 0
    augmentation_kind: ViewKind = "crop"
    seed: int = 0
    corruption: "Corruption | None" = None
    preprocess: Mode = "fast"
    max_pixels: int = DEFAULT_MAX_PIXELS
    pixels: Pixels | None = None
    stop_on_error: bool = False
    workers: int | None = None

    @property
    def decoder(self) -> str:
        """Names and versions of the libraries on which the pixels of decoded images depend."""
        mode = "fast" if self.preprocess == "gpu" and not self.decodes_on_gpu else self.preprocess
        return decoder_name(mode)

    @property
    def decodes_on_gpu(self) -> bool:
        """Whether a GPU decodes JPEGs; not those that are to be corrupted, which the CPU does."""
        return self.preprocess == "gpu" and self.corruption is None

    @property
    def reading(self) -> tuple[Mode, int, "Corruption | None", Pixels | None]:
        """What `decode` takes to read an image."""
        return self.preprocess, self.max_pixels, self.corruption, self.pixels

    def read(self, opener: ImageOpener) -> bytes:
        """The encoded image, as `read_encoded`."""
        return read_encoded(seen_as(opener, self.pixels), self.max_pixels)

    @property
    def augmentation(self) -> Augmentation | None:
        """The random views of each image; None for the image itself."""
        if not self.augment_runs:
            return None
        return Augmentation(self.augment_runs, self.seed, self.augmentation_kind)

    @property
    def described_augmentation(self) -> str | None:
        """What augmented passes see, for provenance; None for the usual crops and without any."""
        usual = type(self).augmentation_kind
        unusual = self.augment_runs > 0 and self.augmentation_kind != usual
        return self.augmentation_kind if unusual else None

    @property
    def run_numbers(self) -> Sequence[int]:
        """Number of each view of an image."""
        return numbers_of_runs(self.augment_runs)

    def plain(self) -> Self:
        """The same for the images themselves, of which bad ones are listed."""
        return replace(self, augment_runs=0, stop_on_error=False)

    def describe(self) -> dict[str, object]:
        """JSON values of what the features of images depend on, for provenance."""
        return {"mode": self.preprocess, "decoder": self.decoder, "max_pixels": self.max_pixels}


@dataclass(frozen=True)
class ExtractionTask:
    """All that a machine needs to extract any shard of a dataset.

    Attributes:
        dataset: The dataset, whose images every node of a cluster must be able to reach.
        known: Images whose features are known from an earlier run; None if there are none.
        watch: Is told which images are being read and decoded in this process; None to tell nobody.
    """

    dataset: Dataset
    backbone: str
    network: BackboneOptions = field(default_factory=BackboneOptions)
    options: ExtractOptions = field(default_factory=ExtractOptions)
    known: KnownImages | None = None
    watch: ImageWatch | None = None

    def __post_init__(self) -> None:
        require_modality(self.backbone, self.dataset.modality)
        if self.dataset.modality == "text":
            _refuse_image_options(self.options)


def _refuse_image_options(options: ExtractOptions) -> None:
    """Refuses settings that mean nothing for texts."""
    usual = ExtractOptions()
    for name in ("augment_runs", "corruption", "preprocess", "pixels"):
        if getattr(options, name) != getattr(usual, name):
            raise DatasetError.leave_out(f"{name} does not apply to texts", name)
