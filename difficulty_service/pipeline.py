"""From a dataset to the features of all its images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.engines import local
from difficulty_service.engines.cluster import ClusterOptions
from difficulty_service.engines.recipe import Recipe
from difficulty_service.errors import DatasetError
from difficulty_service.extraction.batches import ExtractOptions
from difficulty_service.extraction.shards import Progress, extract_shards, ignore
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.feature_store.part import BadImage
from difficulty_service.feature_store.store import FeatureStore, create_store
from difficulty_service.images.preparation import decoder_name
from difficulty_service.scoring.score_store import require_same_features

Watch = Callable[[int, int, int], AbstractContextManager[Progress]]
"""Given the number of samples, how many are done and how many of those are bad images, gives what
to call with every batch."""


@dataclass(frozen=True)
class Share:
    """One of several runs that divide a dataset's shards among them.

    Attributes:
        index: Of this run, from 0.
        of: Number of runs.
    """

    index: int = 0
    of: int = 1

    def takes(self, shard: int) -> bool:
        """Whether a shard is for this run."""
        return shard % self.of == self.index


@dataclass(frozen=True)
class ExtractRequest:
    """A dataset, a backbone, and where the features go.

    Attributes:
        location: Of the dataset.
        out: Folder of the feature store.
        backbone: Its name.
        dataset: How to read the dataset.
        network: What to build the backbone with.
        options: How images become features.
        resume: Keep what an earlier run extracted.
        fitted_on: Description of the store whose Gaussians will score the features; features
            that they could not score are refused before the first image is read.
        share: Which shards to extract; `merging.merge_stores` joins what the runs made.
        cluster: Which Ray cluster runs the shards; None runs them in this process.
        clock: Told how long each stage is busy, where this process runs them.
    """

    location: str
    out: Path
    backbone: str
    dataset: DatasetOptions = field(default_factory=DatasetOptions)
    network: BackboneOptions = field(default_factory=BackboneOptions)
    options: ExtractOptions = field(default_factory=ExtractOptions)
    resume: bool = True
    fitted_on: Mapping[str, Any] | None = None
    share: Share = field(default_factory=Share)
    cluster: ClusterOptions | None = None
    clock: StageClock | None = None


@dataclass(frozen=True)
class Extracted:
    """A store, complete but for the shares of other runs, and the images that are not in it.

    Attributes:
        store: Where the features are.
        bad_images: What could not be read, of all parts that are there.
        errors_file: Lists them.
        num_samples: Images of this run's shards, readable or not.
    """

    store: FeatureStore
    bad_images: Sequence[BadImage]
    errors_file: Path
    num_samples: int


@contextmanager
def unwatched(_total: int, _done: int, _bad: int) -> Iterator[Progress]:
    """Looks at no batch."""
    yield ignore


def extract(request: ExtractRequest, watch: Watch = unwatched) -> Extracted:
    """Features of every readable image of a dataset; goes on where an earlier run ended.

    Raises:
        DatasetError: The dataset cannot be read, no image of it, or no image of one class.
        BackboneError: No pretrained weights.
        EngineError: The cluster cannot be reached, has no room, or loses its actors.
        FeatureStoreError: The folder holds features that were made otherwise.
        ImageError: A bad image, where the options say to stop at one.
    """
    return extract_dataset(open_dataset(request.location, request.dataset), request, watch)


def extract_dataset(
    dataset: Dataset,
    request: ExtractRequest,
    watch: Watch = unwatched,
    load: Loader = load_backbone,
) -> Extracted:
    """As `extract`, of a dataset that is open already and with a backbone that may be.

    Args:
        dataset: Takes the place of what lies at the request's location.
        request: The rest of it.
        watch: Sees every batch; whatever it raises ends the extraction.
        load: Gives the backbone.
    """
    network = request.network
    if request.cluster is not None:
        # Here it is only described; the driver of a cluster may have no GPU.
        network = replace(network, device=torch.device("cpu"))
    backbone = load(request.backbone, network)
    description = describe(request, dataset, backbone)
    if request.fitted_on is not None:
        require_same_features(description, request.fitted_on)
    store = create_store(request.out, description, resume=request.resume)
    shards = [shard for shard in range(dataset.num_shards) if request.share.takes(shard)]
    missing = sorted(set(store.missing_parts()) & set(shards))
    total = sum(len(dataset.shard_positions(shard)) for shard in shards)
    done = total - sum(len(dataset.shard_positions(shard)) for shard in missing)
    with watch(total, done, len(store.bad_images())) as progress:
        _run_shards(dataset, missing, backbone, request, store, progress)
    bad_images = store.bad_images()
    errors_file = store.write_errors(bad_images)
    if request.share.of == 1:
        _require_every_class(dataset, bad_images, errors_file)
    return Extracted(store, bad_images, errors_file, total)


def _run_shards(
    dataset: Dataset,
    shards: Sequence[int],
    backbone: Backbone,
    request: ExtractRequest,
    store: FeatureStore,
    progress: Progress,
) -> None:
    if request.cluster is None:
        options, clock = request.options, request.clock
        extracted = extract_shards(dataset, shards, backbone, options, progress, clock)
        local.write_shards(extracted, store, clock)
        return
    from difficulty_service.engines import ray_cluster

    recipe = Recipe(dataset, request.backbone, request.network, request.options)
    ray_cluster.extract_shards(
        recipe, shards, backbone.weights_sha256, store, request.cluster, progress
    )


def describe(request: ExtractRequest, dataset: Dataset, backbone: Backbone) -> dict[str, Any]:
    """What a store says about its features."""
    return {
        "dataset": request.location,
        "fingerprint": dataset.fingerprint,
        "class_names": list(dataset.class_names),
        "num_samples": len(dataset.labels),
        "num_shards": dataset.num_shards,
        "shard_size": dataset.shard_size,
        "backbone": backbone.name,
        "weights_sha256": backbone.weights_sha256,
        "features": request.network.features,
        "feature_dim": backbone.feature_dim,
        "precision": str(request.network.precision).removeprefix("torch."),
        "preprocessing": backbone.preprocessing.describe(),
        "mode": request.options.mode,
        "decoder": decoder_name() if request.options.mode == "fast" else "pillow",
        "max_pixels": request.options.max_pixels,
        "augment_runs": request.options.augment_runs,
        "seed": request.options.seed,
        "package_version": version("difficulty-service"),
    }


def _require_every_class(
    dataset: Dataset, bad_images: Sequence[BadImage], errors_file: Path
) -> None:
    """Raises where no image, or no image of some class, could be read."""
    if not bad_images:
        return
    first = f"the first is {bad_images[0].sample_id}: {bad_images[0].reason}"
    if len(bad_images) == len(dataset.labels):
        raise DatasetError(f"none of the {len(bad_images)} images can be read; {first}")
    bad_ids = {bad.sample_id for bad in bad_images}
    readable = [sample_id not in bad_ids for sample_id in dataset.sample_ids]
    lost = sorted(set(dataset.labels.tolist()) - set(dataset.labels[readable].tolist()))
    if lost:
        names = [dataset.class_names[label] for label in lost]
        raise DatasetError(
            f"no image can be read of {len(lost)} classes: {names[:5]}; see {errors_file}"
        )
