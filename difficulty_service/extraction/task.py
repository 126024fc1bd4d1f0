"""An extraction task: a dataset, a backbone, and how images become features."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Self

from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.backbones.text_encoders import require_modality
from difficulty_service.base.contract import given
from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.features.description import (
    FeatureDescription,
    ImageSizes,
    PrecisionPilot,
    RecordedOptions,
    numbers_of_runs,
)
from difficulty_service.features.known_images import KnownImages
from difficulty_service.images.header import read_encoded
from difficulty_service.images.preparation import (
    DEFAULT_MAX_PIXELS,
    Augmentation,
    Mode,
    decoder_name,
)

if TYPE_CHECKING:
    from difficulty_service.images.corruptions import Corruption


@dataclass(frozen=True)
class ExtractOptions:
    """Settings by which images become features.

    Attributes:
        batch_size: Number of images in one forward pass; None for what suits the device.
        augment_runs: Number of randomly augmented passes over each image; 0 for one plain pass.
        corruption: Corruption of every image before anything else; None for none.
        stop_on_error: Whether to end at the first bad image instead of listing it.
        workers: Number of threads that read and decode, and on a CPU also run small networks;
            None for as many as there are cores, or on a cluster for what suits an actor.
        open_precision: Whether the network's precision is only that of its device, which
            `precision.settle_precision` may change before the extraction.
        precision_pilot: Comparison by which the precision was chosen, if any.
        image_sizes: Sizes by which the backbone was chosen, if they were.
    """

    batch_size: int | None = None
    augment_runs: int = 0
    seed: int = 0
    corruption: "Corruption | None" = None
    preprocess: Mode = "fast"
    max_pixels: int = DEFAULT_MAX_PIXELS
    stop_on_error: bool = False
    workers: int | None = None
    open_precision: bool = False
    precision_pilot: PrecisionPilot | None = None
    image_sizes: ImageSizes | None = None

    @property
    def decoder(self) -> str:
        """Names and versions of the libraries on which the pixels of decoded images depend."""
        return decoder_name(self.preprocess)

    @property
    def reading(self) -> tuple[Mode, int, "Corruption | None"]:
        """What `decode` takes to read an image."""
        return self.preprocess, self.max_pixels, self.corruption

    def read(self, opener: ImageOpener) -> bytes:
        """The encoded image, as `read_encoded`."""
        return read_encoded(opener, self.max_pixels)

    @property
    def augmentation(self) -> Augmentation | None:
        """The random views of each image; None for the image itself."""
        return Augmentation(self.augment_runs, self.seed) if self.augment_runs else None

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
    for name in ("augment_runs", "corruption", "preprocess"):
        if getattr(options, name) != getattr(usual, name):
            raise DatasetError(
                f"{name} does not apply to texts", "leave out ", Setting(name), parameter=name
            )


def describe_features(
    task: ExtractionTask, backbone: Backbone, location: str, reading: DatasetOptions
) -> FeatureDescription:
    """What a store is recognised by when it is resumed, merged or scored."""
    dataset, network, options = task.dataset, task.network, task.options
    return FeatureDescription(
        dataset=location,
        dataset_options=RecordedOptions.of_options(reading),
        fingerprint=dataset.fingerprint,
        class_names=tuple(dataset.class_names),
        num_samples=len(dataset.labels),
        num_shards=dataset.num_shards,
        shard_size=dataset.shard_size,
        backbone=backbone.name,
        weights_sha256=backbone.weights_sha256,
        feature_dim=backbone.feature_dim,
        preprocessing=backbone.preprocessing.describe(),
        augment_runs=options.augment_runs,
        seed=options.seed,
        package_version=version("difficulty-service"),
        **network.describe(),
        **given(
            containers=dataset.containers,
            precision_pilot=options.precision_pilot,
            image_sizes=options.image_sizes,
            corruption=options.corruption and str(options.corruption),
            boxes=dataset.boxes or None,
        ),
        **({"modality": "text"} if dataset.modality == "text" else options.describe()),
    )
