"""The whole path: a dataset to features, features to Gaussians, Gaussians to a score file.

`score_dataset` runs all of it. Its stages are `extract_dataset` and `score_features`, which fits
with `fit_store` unless Gaussians are given and scores with `score_store`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.extraction.description import describe_features
from difficulty_service.extraction.engines.cluster import ClusterOptions
from difficulty_service.extraction.engines.local import Engine, LocalEngine
from difficulty_service.extraction.extracted_shard import warn_of_unreadable_classes
from difficulty_service.extraction.image_watch import ImageWatch
from difficulty_service.extraction.part_writer import PartWriter, set_aside_changed
from difficulty_service.extraction.shard_subset import ShardSubset
from difficulty_service.extraction.stage_clock import StageClock
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.errors_file import BadImage, write_errors
from difficulty_service.features.previous import (
    Reuse,
    delete_reused,
    open_previous,
    writable_store,
)
from difficulty_service.features.source import FeatureSource
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scorers.near_duplicates import require_threshold
from difficulty_service.scores.file import require_score_file_name
from difficulty_service.scores.fit_store import fit_store
from difficulty_service.scores.fitted_gaussians import FittedGaussians, require_same_features
from difficulty_service.scores.rows import require_packages
from difficulty_service.scores.store import ScoreSummary, score_store


@dataclass(frozen=True)
class ExtractRequest:
    """A dataset, a backbone, and where the features go.

    Attributes:
        location: Location of the dataset.
        out: Folder of the feature store.
        backbone: Name of the backbone.
        dataset: Settings by which to read the dataset.
        network: Device, precision and weights of the backbone.
        options: Settings by which images become features.
        resume: Whether to keep what an earlier run extracted.
        subset: Shards to extract; `merging.merge_stores` joins the stores of all subsets.
        cluster: Ray cluster that runs the shards; None to run them in this process.
        clock: Measures how long each stage is busy in this process; None to measure nothing.
        lend: Function that may first add features of other runs, as in `features.previous`.
        watch: Is told which images are being read and decoded in this process; None to tell nobody.
    """

    location: str
    out: Path
    backbone: str
    dataset: DatasetOptions = field(default_factory=DatasetOptions)
    network: BackboneOptions = field(default_factory=BackboneOptions)
    options: ExtractOptions = field(default_factory=ExtractOptions)
    resume: bool = True
    subset: ShardSubset = field(default_factory=ShardSubset)
    cluster: ClusterOptions | None = None
    clock: StageClock | None = None
    lend: Callable[[FeatureStore], None] | None = None
    watch: ImageWatch | None = None


@dataclass(frozen=True)
class ScoreRequest:
    """Settings by which features become scores, and the file for them.

    Attributes:
        out: Score file to write.
        scorers: Some of `rmd`, `kmeans`, `knn`, `suspicion` and `agree`; `rmd` is always there.
        fit: Settings by which to fit Gaussians to the features.
        fitted: Gaussians to score against instead; None to fit them.
        near_duplicates: Smallest cosine of near duplicates, in (0, 1]; None to look for none.

    Raises:
        StatisticsError: The smallest cosine is outside (0, 1].
    """

    out: Path
    scorers: Sequence[str] = ("rmd",)
    fit: FitOptions = field(default_factory=FitOptions)
    fitted: FittedGaussians | None = None
    near_duplicates: float | None = None

    def __post_init__(self) -> None:
        require_threshold(self.near_duplicates)


@dataclass(frozen=True)
class ExtractProgress:
    """Progress of an extraction.

    Attributes:
        total: Number of images in the shards of the run.
        done: Number of images done, in this run or an earlier one.
        bad: Number of images that could not be read.
    """

    total: int
    done: int
    bad: int


@dataclass(frozen=True)
class ExtractedDataset:
    """The feature store of a run, complete but for the shards of other subsets.

    Attributes:
        store: Feature store of the run.
        bad_images: Images that could not be read, in all parts that are there.
        skipped: Entries of the dataset that are no samples, such as rows without a label.
        errors_file: File that lists both.
        num_samples: Number of images in the shards of the run, readable or not.
        reuse: What the run did with the features of earlier runs; None if there were none.
    """

    store: FeatureStore
    bad_images: Sequence[BadImage]
    skipped: Sequence[BadImage]
    errors_file: Path
    num_samples: int
    reuse: Reuse | None = None


@dataclass(frozen=True)
class ScoredDataset:
    """Result of `score_dataset`.

    Attributes:
        extracted: Features of the dataset.
        scores: Summary of the score file.
    """

    extracted: ExtractedDataset
    scores: ScoreSummary


def ignore(_event: object) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called during a run; whatever they raise ends it.

    Attributes:
        progress: Called before the first image and after every batch.
        extracted: Called when the features are complete.
        fitted: Called when Gaussians have been fitted; not called where they are given.
    """

    progress: Callable[[ExtractProgress], None] = ignore
    extracted: Callable[[ExtractedDataset], None] = ignore
    fitted: Callable[[FittedGaussians], None] = ignore


NO_CALLBACKS = Callbacks()


def score_dataset(
    extraction: ExtractRequest,
    scoring: ScoreRequest,
    callbacks: Callbacks = NO_CALLBACKS,
    dataset: Dataset | None = None,
    load: Loader = load_backbone,
) -> ScoredDataset:
    """Extracts the features of a dataset and scores them; resumes an earlier run.

    Args:
        extraction: The dataset, the backbone and where the features go.
        scoring: Settings by which to score the features, and the file for the scores.
        callbacks: Functions that are called between the stages.
        dataset: The dataset where it is open already; None to open the one at the location.
        load: Loads the backbone.

    Raises:
        MissingPackage: A scorer needs a package that is not installed.
        DifficultyError: As for `extract_dataset` and `score_features`.
    """
    require_packages(scoring.scorers, scoring.near_duplicates)  # before hours of extraction
    require_score_file_name(scoring.out)
    fitted_on = scoring.fitted.description if scoring.fitted else None
    dataset = dataset or open_dataset(extraction.location, extraction.dataset)
    extracted = extract_dataset(dataset, extraction, callbacks.progress, load, fitted_on)
    callbacks.extracted(extracted)
    return ScoredDataset(extracted, score_features(extracted.store, scoring, callbacks))


def score_features(
    store: FeatureSource, request: ScoreRequest, callbacks: Callbacks = NO_CALLBACKS
) -> ScoreSummary:
    """Scores features on disk or in memory, against Gaussians fitted to them or to others.

    Raises:
        ScoreFileError: The score file cannot have this name.
        StatisticsError: The features allow no trustworthy Gaussian, or differ from those given.
    """
    require_packages(request.scorers, request.near_duplicates)
    require_score_file_name(request.out)
    fitted = request.fitted
    if fitted is None:
        fitted = fit_store(store, request.fit)
        callbacks.fitted(fitted)
    return score_store(store, fitted, request.scorers, request.out, request.near_duplicates)


def extract(
    request: ExtractRequest, progress: Callable[[ExtractProgress], None] = ignore
) -> ExtractedDataset:
    """Opens the dataset at the location and extracts it; see `extract_dataset`."""
    return extract_dataset(open_dataset(request.location, request.dataset), request, progress)


def extract_dataset(
    dataset: Dataset,
    request: ExtractRequest,
    progress: Callable[[ExtractProgress], None] = ignore,
    load: Loader = load_backbone,
    fitted_on: FeatureDescription | None = None,
) -> ExtractedDataset:
    """Features of every readable image of a dataset; resumes an earlier run.

    Args:
        dataset: The dataset at the location of the request.
        request: Settings of the extraction, and the folder for the features.
        progress: Called before the first image and after every batch.
        load: Loads the backbone.
        fitted_on: Description of the features of the Gaussians that will score these features;
            features of another kind are refused before the first image is read.

    Raises:
        DatasetError: The dataset or all of its images cannot be read.
        BackboneError: The pretrained weights are missing.
        EngineError: The cluster cannot be reached, has no room, or loses its actors.
        FeatureStoreError: The folder holds features of other settings, or is being written to.
        ImageError: An image is bad, and the options say to stop at one.
        StatisticsError: The features are not of the kind that `fitted_on` describes.
    """
    # The driver of a cluster only describes the backbone, and may have no GPU.
    here = replace(request.network, device=torch.device("cpu"))
    backbone = load(request.backbone, here if request.cluster else request.network)
    task = ExtractionTask(dataset, backbone.name, request.network, request.options)
    description = describe_features(task, backbone, request.location, request.dataset)
    if fitted_on is not None:
        require_same_features(description, fitted_on)
    with writable_store(request.out, description, resume=request.resume) as store:
        shards = [shard for shard in range(dataset.num_shards) if request.subset.includes(shard)]
        set_aside_changed(dataset, store, shards)
        if request.lend is not None:
            request.lend(store)
        missing = sorted(set(store.missing_parts()) & set(shards))
        total = sum(len(dataset.shard_positions(shard)) for shard in shards)
        done = total - sum(len(dataset.shard_positions(shard)) for shard in missing)
        state = ExtractProgress(total, done, len(store.bad_images()))
        progress(state)

        def on_batch(images: int, bad_images: int) -> None:
            nonlocal state
            state = replace(state, done=state.done + images, bad=state.bad + bad_images)
            progress(state)

        previous = open_previous(store) if missing else None
        writer = PartWriter(store, dataset, previous)
        task = replace(task, known=previous.known if previous else None, watch=request.watch)
        _choose_engine(request).run_shards(task, backbone, missing, writer, on_batch)
        reuse = Reuse(writer.num_new, delete_reused(store)) if previous else None
        bad_images = store.bad_images()
        skipped = [BadImage(*entry) for entry in dataset.skipped]
        errors_file = write_errors(store.folder, [*skipped, *bad_images])
        warnings = list(dataset.warnings)
        if request.subset.num_subsets == 1:
            warnings += warn_of_unreadable_classes(dataset, bad_images)
        store = store.with_warnings(warnings)
        return ExtractedDataset(store, bad_images, skipped, errors_file, total, reuse)


def _choose_engine(request: ExtractRequest) -> Engine:
    if request.cluster is None:
        return LocalEngine(request.clock)
    from difficulty_service.extraction.engines.ray_cluster import RayEngine

    return RayEngine(request.cluster)
