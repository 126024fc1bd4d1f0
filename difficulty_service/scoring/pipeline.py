"""The whole path: a dataset to features, features to Gaussians, Gaussians to a score file.

`make_plan` makes of a run what it does on this machine, and `execute` extracts its features.
`score_dataset` also scores them: `score_features` fits with `fit_store` unless Gaussians are given,
and scores with `score_store`. What a person leaves open is settled by `make_plan`, the device, and
once the dataset is open by `extraction.policy`.
"""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from difficulty_service.backbones import DEFAULT_BACKBONE, Loader, load_backbone
from difficulty_service.backbones.backbone import (
    EVERY_GPU,
    BackboneOptions,
    choose_device,
    choose_precision,
)
from difficulty_service.backbones.downloads import Downloads
from difficulty_service.base.cluster import ClusterOptions
from difficulty_service.base.control_groups import memory_limit
from difficulty_service.base.devices import all_gpus, current, left_out_gpus, named_gpus
from difficulty_service.base.errors import DeviceError, Setting
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.extraction.default_backbone import SMALL
from difficulty_service.extraction.engines.local import Engine, LocalEngine
from difficulty_service.extraction.engines.several_devices import SeveralDevices
from difficulty_service.extraction.extracted_shard import warn_of_unreadable_classes
from difficulty_service.extraction.memory import require_memory
from difficulty_service.extraction.plan import Plan
from difficulty_service.extraction.policy import Runtime, settle, settle_runtime
from difficulty_service.extraction.shard_writer import ShardWriter, set_aside_changed
from difficulty_service.extraction.task import ExtractOptions
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.errors_file import BadImage, write_errors
from difficulty_service.features.on_device import FeaturesOnDevice
from difficulty_service.features.previous import (
    Reuse,
    delete_reused,
    open_previous,
    writable_store,
)
from difficulty_service.features.source import FeatureSource
from difficulty_service.features.store import FeatureStore
from difficulty_service.images.nvjpeg import jpeg_decoder
from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import Pixels, parse_bands
from difficulty_service.marks.review_folder import Review, UndoneRound
from difficulty_service.scores.file import require_score_file_name
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.fitted_gaussians import FittedGaussians, require_same_features
from difficulty_service.scoring.made_labels import make_labels, require_unlabelled
from difficulty_service.scoring.marked_features import MarkedFeatures
from difficulty_service.scoring.reviewing import as_seen, reviewed
from difficulty_service.scoring.rows import Resources, require_packages
from difficulty_service.scoring.store import ScoreSummary, score_store
from difficulty_service.scoring.words import needing_words, require_words
from difficulty_service.settings.option_types import parse_actors
from difficulty_service.settings.options import EncodingOptions, ScoringOptions
from difficulty_service.settings.run import Run

LEAST_NUMBERS = 1 << 24
"""Numbers in all features from which on a GPU is worth the second that it takes to start."""


@dataclass(frozen=True)
class ScoreRequest:
    """Settings by which features become scores, and the file for them.

    Attributes:
        fitted: Gaussians to score against; None to fit them.
        review: What people decided about the samples; None for nothing.
        before: Scores of an earlier round; None for those in `out`, which are replaced.
        weights: File of the CLIP that made the features, for names of classes; None for that of
            the hub.
        device: Device of the run, also of fits and scores; None where it has none.
    """

    out: Path
    options: ScoringOptions = field(default_factory=ScoringOptions)
    fitted: FittedGaussians | None = None
    review: Review | None = None
    before: Path | None = None
    weights: str | None = None
    device: torch.device | None = None


@dataclass(frozen=True)
class ExtractProgress:
    """Progress of an extraction.

    Attributes:
        bad: Number of samples that could not be read.
        noun: What is counted in a word.
    """

    total: int
    done: int
    bad: int
    noun: str


@dataclass(frozen=True)
class ExtractedDataset:
    """The feature store of a run, complete but for the shards of other subsets.

    Attributes:
        bad_images: Images that could not be read, in all parts that are there.
        skipped: Entries of the dataset that are no samples, such as rows without a label.
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
    """Result of `score_dataset`."""

    extracted: ExtractedDataset
    found: ScoreSummary


def ignore(_event: object) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called during a run; whatever they raise ends it.

    Attributes:
        settled: Called with the plan when all is chosen that it left open.
        progress: Called before the first image and after every batch.
        running: Called when the library is chosen that runs the network, before the first image;
            not called where a cluster does.
        extracted: Called when the features are complete.
        ready: Called when the features are there, with the labels that were made for them, and
            nothing has been done with marks yet.
        taken_back: Called when decisions have been taken back and are in a file of their own.
        marked: Called when marks have been applied to the features and are remembered; not called
            without marks.
        fitted: Called when Gaussians have been fitted; not called where they are given.
    """

    progress: Callable[[ExtractProgress], None] = ignore
    settled: Callable[[Plan], None] = ignore
    running: Callable[[Runtime], None] = ignore
    extracted: Callable[[ExtractedDataset], None] = ignore
    ready: Callable[[FeatureSource], None] = ignore
    taken_back: Callable[[UndoneRound], None] = ignore
    marked: Callable[[MarkedFeatures], None] = ignore
    fitted: Callable[[FittedGaussians], None] = ignore


NO_CALLBACKS = Callbacks()


def make_plan(run: Run) -> Plan:
    """What a run does for its features, on the device that it will run on.

    Raises:
        DeviceError: This machine has no such device.
        EngineError: The cluster has none, or does not answer.
        ConfigError: There is no such corruption.
    """
    encoding, network, machine = run.encoding, run.network, run.machine
    cluster = None
    if machine.engine == "ray":
        actors = (1, None) if machine.ray_actors is None else parse_actors(machine.ray_actors)
        cluster = ClusterOptions(machine.ray_address, *actors)
    device, precision, devices = _choose_machine(run, cluster)
    if network.preprocess == "gpu" and (cluster is None or device.type != "cuda"):
        jpeg_decoder(device)  # refuses what cannot decode, before anything is read
    corruption = None
    if encoding.corrupt is not None:
        # Imported here, because SciPy takes time that other runs need not spend.
        from difficulty_service.images.corruptions import parse_corruption

        corruption = parse_corruption(encoding.corrupt, encoding.seed)
    return Plan(
        location=run.source,
        out=run.features,
        backbone=network.backbone,
        dataset=DatasetOptions(**run.reading),
        network=BackboneOptions(
            weights=machine.weights,
            features=network.features,
            device=device,
            precision=precision,
            flip=encoding.flip,
            image_size=network.image_size,
            downloads=Downloads(machine.max_download_bytes),
        ),
        options=ExtractOptions(
            batch_size=machine.batch_size,
            augment_runs=encoding.augment_runs,
            augmentation_kind=encoding.augmentation,
            seed=encoding.seed,
            corruption=corruption,
            preprocess=network.preprocess,
            max_pixels=machine.max_pixels,
            pixels=_pixels_of(encoding),
            stop_on_error=encoding.on_error == "stop",
            workers=machine.workers,
        ),
        resume=machine.resume,
        cluster=cluster,
        devices=devices,
        open_precision=machine.precision == "auto",
    )


def _pixels_of(encoding: EncodingOptions) -> Pixels | None:
    """What a person chose to be seen of images; None for nothing."""
    asked = Pixels(
        None if encoding.pixel_range is None else PixelRange.parse(encoding.pixel_range),
        () if encoding.bands is None else parse_bands(encoding.bands),
        encoding.page or "",
    )
    return None if asked == Pixels() else asked


def _choose_machine(
    run: Run, cluster: ClusterOptions | None
) -> tuple[torch.device, torch.dtype, Sequence[torch.device]]:
    """The device and the precision of the backbone, on this machine or on a cluster's nodes.

    Also the devices of this machine that share the work, where those are several.
    """
    gpus: Sequence[torch.device] = ()
    if cluster is None and run.machine.device == EVERY_GPU:
        gpus = all_gpus()
        named = named_gpus()
        of_those = f" of those that CUDA_VISIBLE_DEVICES names ({', '.join(named)})"
        if not gpus:
            raise DeviceError(
                f"device {EVERY_GPU!r} cannot be used here: no NVIDIA GPU"
                f"{of_those if named else ''} computes",
                "use ",
                Setting("device", "cpu"),
                parameter="device",
            )
        if (left_out := left_out_gpus()) is not None:
            raise DeviceError(
                f"device {EVERY_GPU!r} cannot be used here: {left_out}", parameter="device"
            )
        device = gpus[0]
    elif cluster is None:
        device = choose_device(run.machine.device)
    else:
        from difficulty_service.extraction.engines.ray_cluster import choose_on_cluster

        device = choose_on_cluster(run.machine.device, cluster)
    precision = choose_precision(run.machine.precision, device)
    return device, precision, gpus if len(gpus) > 1 else ()


def features_beside(out: Path, options: ScoringOptions) -> Path:
    """Folder for the features of the dataset whose scores go into a file.

    Those beside decisions about tags have another name, since their rows are other ones.
    """
    return out.with_suffix(".features" if options.tags is None else ".samples.features")


def score_dataset(
    plan: Plan,
    scoring: ScoreRequest,
    callbacks: Callbacks = NO_CALLBACKS,
    dataset: Dataset | None = None,
    load: Loader = load_backbone,
) -> ScoredDataset:
    """Extracts the features of a dataset and scores them; resumes an earlier run.

    Args:
        plan: The dataset, the backbone and where the features go.
        scoring: Settings by which to score the features, and the file for the scores.
        callbacks: Functions that are called between the stages.
        dataset: The dataset where it is open already; None to open the one at the location.

    Raises:
        MissingPackage: A scorer needs a package that is not installed.
        DifficultyError: As for `execute` and `score_features`.
    """
    require_packages(scoring.options)  # before hours of extraction
    require_score_file_name(scoring.out)
    fitted_on = scoring.fitted.description if scoring.fitted else None
    dataset = dataset or open_dataset(plan.location, plan.dataset)
    require_unlabelled(dataset.class_names, scoring.options)
    advice: AbstractContextManager[None] = nullcontext()
    if scoring.options.needs_words:
        advice = needing_words(scoring.options)
        named = plan.backbone or (fitted_on and fitted_on.backbone) or DEFAULT_BACKBONE
        require_words(named, plan.network.features, scoring.options)
        plan = replace(plan, backbone=named)
    scoring = replace(scoring, review=as_seen(scoring.review, plan.out))
    with advice:
        extracted = execute(plan, callbacks, dataset, load, fitted_on)
    callbacks.extracted(extracted)
    # The actors of a cluster have GPUs that this machine may not have.
    device = torch.device("cpu") if plan.cluster else plan.network.device
    scoring = replace(scoring, weights=plan.network.weights, device=device)
    return ScoredDataset(extracted, score_features(extracted.store, scoring, callbacks))


def score_features(
    store: FeatureSource, request: ScoreRequest, callbacks: Callbacks = NO_CALLBACKS
) -> ScoreSummary:
    """Scores features on disk or in memory, against Gaussians fitted to them or to others.

    Many are fitted and scored on the GPU of the request, or on the CPU, with a warning, where that
    has too little memory.

    Raises:
        ScoreFileError: The score file cannot have this name.
        StatisticsError: The features allow no trustworthy Gaussian, or differ from those given.
        CleaningError: The marks drop every sample, or the later ones are of other samples.
    """
    require_packages(request.options)
    require_score_file_name(request.out)
    store = make_labels(store, request.options, request.weights, request.device)
    callbacks.ready(store)
    read = FeaturesOnDevice(store, _device_of_scoring(store, request.device))
    store = read
    if request.review is not None:
        store = reviewed(store, request.review, callbacks.taken_back, callbacks.marked)
    used = Resources(request.weights, request.device)

    def fit_and_score() -> ScoreSummary:
        fitted = request.fitted
        if fitted is None:
            fitted = fit_store(store, request.options.fit)
            callbacks.fitted(fitted)
        return score_store(store, fitted, request.out, request.options, request.before, used)

    if read.device.type == "cuda":
        with suppress(torch.OutOfMemoryError), current(read.device):
            return fit_and_score()
        warnings.warn(
            f"{read.device} has too little memory left to fit and score the features: the CPU does",
            stacklevel=2,
        )
        torch.cuda.empty_cache()
        read.device = torch.device("cpu")
    return fit_and_score()


def device_of_features(name: str) -> torch.device:
    """Device for features that are there, by its name in the options; the first of all GPUs.

    Raises:
        DeviceError: This machine has no such device.
    """
    return choose_device("cuda" if name == EVERY_GPU else name)


def _device_of_scoring(store: FeatureSource, device: torch.device | None) -> torch.device:
    """The GPU of the run where there are features enough, otherwise the CPU."""
    described = store.description
    numbers = described.num_samples * store.runs * (described.feature_dim or 0)
    if device is not None and device.type == "cuda" and numbers >= LEAST_NUMBERS:
        return device
    return torch.device("cpu")


def execute(
    plan: Plan,
    callbacks: Callbacks = NO_CALLBACKS,
    dataset: Dataset | None = None,
    load: Loader = load_backbone,
    fitted_on: FeatureDescription | None = None,
) -> ExtractedDataset:
    """Features of every readable image of a dataset; resumes an earlier run.

    Args:
        callbacks: Of these, `settled`, `running` and `progress` are called.
        dataset: The dataset where it is open already; None to open the one at the location.
        fitted_on: Description of the features of the Gaussians that will score these features;
            features of another kind are refused before the first image is read.

    Raises:
        DatasetError: The dataset or all of its images cannot be read.
        BackboneError: The pretrained weights are missing.
        DifficultyError: The control groups allow too little memory.
        EngineError: The cluster cannot be reached, has no room, or loses its actors.
        FeatureStoreError: The folder holds features of other settings, or is being written to.
        ImageError: An image is bad, and the options say to stop at one.
        StatisticsError: The features are not of the kind that `fitted_on` describes.
    """
    dataset = dataset or open_dataset(plan.location, plan.dataset)
    shards = [shard for shard in range(dataset.num_shards) if plan.subset.includes(shard)]
    if len(shards) <= 1:
        plan = replace(plan, devices=())  # there is nothing to share
    if plan.cluster is None and dataset.modality != "text" and plan.backbone != SMALL:
        require_memory(memory_limit())
    nothing = ExtractProgress(len(dataset.labels), 0, 0, dataset.noun)
    plan = settle(plan, dataset, fitted_on, load, lambda: callbacks.progress(nothing))
    callbacks.settled(plan)
    # Where other processes encode, this one only describes the backbone, and may have no GPU.
    here = plan.network if plan.runs_here else replace(plan.network, device=torch.device("cpu"))
    backbone = load(str(plan.backbone), here)
    if not plan.runs_here:
        # They cannot call what was given to this one.
        plan = plan.reporting(None)
    description = plan.describe_features(dataset, backbone)
    if fitted_on is not None:
        require_same_features(description, fitted_on)
    with writable_store(plan.out, description, resume=plan.resume) as store:
        set_aside_changed(dataset, store, shards)
        if plan.lend is not None:
            plan.lend(store)
        missing = sorted(set(store.missing_shards()) & set(shards))
        total = sum(len(dataset.shard_positions(shard)) for shard in shards)
        done = total - sum(len(dataset.shard_positions(shard)) for shard in missing)
        state = ExtractProgress(total, done, len(store.bad_images()), dataset.noun)
        callbacks.progress(state)

        def on_batch(images: int, bad_images: int) -> None:
            nonlocal state
            state = replace(state, done=state.done + images, bad=state.bad + bad_images)
            callbacks.progress(state)

        previous = open_previous(store) if missing else None
        writer = ShardWriter(store, dataset, previous)
        known = previous.known if previous else None
        task = replace(plan.task(dataset), backbone=backbone.name, known=known)
        runtime = Runtime(backbone)
        if plan.runs_here:
            runtime = settle_runtime(task, backbone, total - done)
            callbacks.running(runtime)
        with current(here.device):
            engine = _choose_engine(plan)
            library = engine.run_shards(task, runtime.backbone, missing, writer, on_batch)
        reuse = Reuse(writer.num_new, delete_reused(store)) if previous else None
        bad_images = store.bad_images()
        skipped = [BadImage(*entry) for entry in dataset.skipped]
        errors_file = write_errors(store.folder, [*skipped, *bad_images])
        warnings = [*plan.pixel_notes, *dataset.warnings, *runtime.warnings]
        if plan.subset.num_subsets == 1:
            warnings += warn_of_unreadable_classes(dataset, bad_images)
        store = store.with_warnings(warnings, library)
        return ExtractedDataset(store, bad_images, skipped, errors_file, total, reuse)


def _choose_engine(plan: Plan) -> Engine:
    if plan.runs_here:
        return LocalEngine(plan.clock)
    if plan.cluster is None:
        return SeveralDevices(plan.devices)
    from difficulty_service.extraction.engines.ray_cluster import RayEngine

    return RayEngine(plan.cluster)
