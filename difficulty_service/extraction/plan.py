"""The plan of a run: what it does for its features on a machine or a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Self

import torch

from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.backbones.downloads import DownloadProgress
from difficulty_service.base.cluster import ClusterOptions
from difficulty_service.base.contract import given
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.description import (
    FeatureDescription,
    ImageSizes,
    PrecisionPilot,
    RecordedOptions,
)
from difficulty_service.features.store import FeatureStore


@dataclass(frozen=True)
class ShardSubset:
    """The shards of one of several runs that divide a dataset among them.

    Attributes:
        index: Index of the run, from 0.
    """

    index: int = 0
    num_subsets: int = 1

    def includes(self, shard: int) -> bool:
        """Whether a shard belongs to the subset."""
        return shard % self.num_subsets == self.index


@dataclass(frozen=True)
class Plan:
    """A dataset, a backbone, and where the features go.

    Attributes:
        backbone: Name of the backbone; None for the backbone of the Gaussians that will score
            the features, or else the best that can be had.
        resume: Whether to keep what an earlier run extracted.
        subset: Shards to extract; `merging.merge_stores` joins the stores of all subsets.
        cluster: Ray cluster that runs the shards; None to run them on this machine.
        devices: Devices of this machine that run them, each in a process; empty to run them in this
            process.
        clock: Measures how long each stage is busy in this process; None to measure nothing.
        lend: Function that may first add features of other runs, as in `features.previous`.
        watch: Is told which images are being read and decoded in this process; None to tell nobody.
        open_precision: Whether the network's precision is only the default of its device,
            which `policy.settle` may change.
        precision_pilot: Comparison by which the precision was chosen, if any.
        precision_reason: The precision and why it is that one; None for the default of the device.
        image_sizes: Sizes by which the backbone was chosen, if they were.
        pixel_notes: What becomes black and white of images of more than eight bits, and why, and
            which bands and pages are not seen, a sentence each; none where a person chose it.
        warnings: Why the backbone is not the usual one, and the condition of its licence where it
            has one; one sentence each.
    """

    location: str
    out: Path
    backbone: str | None
    dataset: DatasetOptions = field(default_factory=DatasetOptions)
    network: BackboneOptions = field(default_factory=BackboneOptions)
    options: ExtractOptions = field(default_factory=ExtractOptions)
    resume: bool = True
    subset: ShardSubset = field(default_factory=ShardSubset)
    cluster: ClusterOptions | None = None
    devices: Sequence[torch.device] = ()
    clock: StageClock | None = None
    lend: Callable[[FeatureStore], None] | None = None
    watch: ImageWatch | None = None
    open_precision: bool = False
    precision_pilot: PrecisionPilot | None = None
    precision_reason: str | None = None
    image_sizes: ImageSizes | None = None
    pixel_notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def task(self, dataset: Dataset) -> ExtractionTask:
        """What extracts any shard of the dataset, once the backbone is chosen.

        Raises:
            BackboneError: The backbone encodes samples of another kind.
            DatasetError: An option does not apply to texts.
        """
        return ExtractionTask(
            dataset, str(self.backbone), self.network, self.options, watch=self.watch
        )

    @property
    def runs_here(self) -> bool:
        """Whether this process runs the shards."""
        return self.cluster is None and not self.devices

    def reporting(self, report: Callable[[DownloadProgress | None], None] | None) -> Self:
        """The same with a function that is told how far a download is, as `Downloads.report`."""
        downloads = replace(self.network.downloads, report=report)
        return replace(self, network=replace(self.network, downloads=downloads))

    def _described_range(self) -> dict[str, object]:
        """What is known of the values of pixels, only where that is not the usual."""
        chosen = self.options.pixels
        return {} if chosen is None else chosen.describe()

    def describe_features(self, dataset: Dataset, backbone: Backbone) -> FeatureDescription:
        """What a store is recognised by when it is resumed, merged or scored."""
        options = self.options
        return FeatureDescription(
            dataset=self.location,
            dataset_options=RecordedOptions.of_options(self.dataset),
            fingerprint=dataset.fingerprint,
            class_names=tuple(dataset.class_names),
            num_samples=len(dataset.labels),
            num_shards=dataset.num_shards,
            shard_size=dataset.shard_size,
            backbone=backbone.name,
            weights_sha256=backbone.weights_sha256,
            feature_dim=backbone.feature_dim,
            preprocessing={**backbone.preprocessing.describe(), **self._described_range()},
            augment_runs=options.augment_runs,
            seed=options.seed,
            package_version=version("difficulty-service"),
            **self.network.describe(),
            **given(
                containers=dataset.containers,
                precision_pilot=self.precision_pilot,
                image_sizes=self.image_sizes,
                corruption=options.corruption and str(options.corruption),
                augmentation=options.described_augmentation,
                boxes=dataset.boxes or None,
            ),
            **({"modality": "text"} if dataset.modality == "text" else options.describe()),
        )
