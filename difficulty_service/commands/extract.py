"""`difficulty extract`: a dataset in, a folder of features out."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import err, out, print_table, print_warnings
from difficulty_service.commands.dataset_report import report_dataset
from difficulty_service.commands.extraction import (
    Extraction,
    Modality,
    read_corruption,
    refuse_other_modality,
    takes_extraction,
    text_column,
)
from difficulty_service.commands.interruption import exit_when_interrupted
from difficulty_service.commands.machine import choose_machine, with_precision
from difficulty_service.commands.options import (
    Engine,
    FeatureKind,
    OnError,
    Precision,
    parse_actors,
)
from difficulty_service.commands.progress import ImageProgressBar

if TYPE_CHECKING:
    from difficulty_service.extraction.shard_subset import ShardSubset
    from difficulty_service.extraction.stage_clock import StageClock
    from difficulty_service.feature_store.previous import Reuse
    from difficulty_service.pipeline import ExtractedDataset, ExtractRequest
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians


@takes_extraction
def extract(
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET", help="Folder, table, tar shards, hf:NAME, or a glob."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the features.")],
    extraction: Extraction,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Extract only part I of N, counted from 0, into a folder of its own; "
            "`difficulty merge` joins them. Under Slurm: $SLURM_PROCID/$SLURM_NTASKS.",
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Show how long each stage was busy, and which is slowest."),
    ] = False,
) -> None:
    """Turns every image or text of a dataset into a feature vector.

    The same command resumes a run that was stopped. Samples that cannot be read are counted and
    listed in `errors.parquet` beside the features.
    """
    request = build_request(dataset, out, extraction)
    choose = partial(choose_backbone, extraction)
    if shard is not None:
        request = replace(request, subset=parse_subset(shard))
    if not profile:
        run_extract(request, choose)
        return
    if request.cluster is not None:
        raise typer.BadParameter("--profile needs --engine local")
    from difficulty_service.extraction.stage_clock import StageClock

    clock = StageClock()
    run_extract(replace(request, clock=clock), choose)
    print_profile(clock)


def print_profile(clock: "StageClock") -> None:
    """Prints a line for each stage, and which stage is the bottleneck."""
    stages = clock.stages()
    rows = [
        (stage.name, stage.threads, f"{stage.busy:.2f}", f"{stage.share:.0%}") for stage in stages
    ]
    print_table(("stage", "threads", "busy s", "busy share"), rows)
    slowest = max(stages, key=lambda stage: stage.share)
    out.print(f"the bottleneck is {slowest.name}: {slowest.share:.0%} of its threads' time")


def parse_subset(text: str) -> "ShardSubset":
    """Reads which part of how many.

    Raises:
        BadParameter: The text is not of the form I/N with I from 0 to N-1.
    """
    from difficulty_service.extraction.shard_subset import ShardSubset

    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise typer.BadParameter(
            f"{text!r} is not of the form I/N with I from 0 to N-1, such as 0/4",
            param_hint="--shard",
        )
    return ShardSubset(int(match[1]), int(match[2]))


def build_request(dataset: str, out: Path, extraction: Extraction) -> "ExtractRequest":
    """The request for the pipeline that the options of the command line describe.

    Its backbone is the default one where none is named; `choose_backbone` has the last word.
    """
    from difficulty_service.backbones import DEFAULT_BACKBONE
    from difficulty_service.backbones.backbone import BackboneOptions
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.engines.cluster import ClusterOptions
    from difficulty_service.extraction.task import ExtractOptions
    from difficulty_service.pipeline import ExtractRequest

    min_actors, max_actors = parse_actors(extraction.ray_actors)
    cluster = None
    if extraction.engine is Engine.RAY:
        cluster = ClusterOptions(extraction.ray_address, min_actors, max_actors)
    elif extraction.ray_address or extraction.ray_actors:
        raise typer.BadParameter("--ray-address and --ray-actors need --engine ray")
    refuse_other_modality(extraction)
    device, precision = choose_machine(extraction, cluster)
    return ExtractRequest(
        location=dataset,
        out=out,
        backbone=extraction.backbone or DEFAULT_BACKBONE,
        dataset=DatasetOptions(
            split=extraction.split,
            image_column=extraction.image_column,
            label_column=extraction.label_column,
            id_column=extraction.id_column,
            text_column=text_column(extraction),
            limit=extraction.limit,
            shard_size=extraction.shard_size,
        ),
        network=BackboneOptions(
            weights=extraction.weights,
            features=extraction.features.value,
            device=device,
            precision=precision,
            flip=extraction.flip,
        ),
        options=ExtractOptions(
            batch_size=extraction.batch_size,
            augment_runs=extraction.augment_runs,
            seed=extraction.seed,
            corruption=read_corruption(extraction),
            mode=extraction.preprocess.value,
            max_pixels=extraction.max_pixels,
            stop_on_error=extraction.on_error is OnError.STOP,
            workers=extraction.workers,
            open_precision=extraction.precision is Precision.AUTO,
        ),
        resume=extraction.resume,
        cluster=cluster,
    )


def choose_backbone(extraction: Extraction, fitted: "FittedGaussians | None" = None) -> str:
    """The backbone that is named, else that of the Gaussians, else the best that can be had.

    Args:
        extraction: Options of the command line. Weights and a kind of features are those of the
            default backbone where they come without a name.
        fitted: Gaussians to score against, if they are given.
    """
    from difficulty_service.backbones import DEFAULT_BACKBONE
    from difficulty_service.backbones.default import default_backbone
    from difficulty_service.backbones.text_encoders import BUILTIN_TEXT

    fitted_to = None if fitted is None else fitted.description.get("backbone")
    if extraction.backbone or fitted_to:
        return extraction.backbone or str(fitted_to)
    if extraction.modality is Modality.TEXT:
        return BUILTIN_TEXT
    if extraction.weights is not None or extraction.features is not FeatureKind.PENULTIMATE:
        return DEFAULT_BACKBONE
    name, warnings = default_backbone()
    print_warnings(warnings)
    return name


def run_extract(request: "ExtractRequest", choose: Callable[[], str]) -> None:
    """Extracts with a progress bar and prints what came out.

    Args:
        request: The dataset and its settings.
        choose: Chooses the backbone, once the dataset is open.
    """
    from difficulty_service.datasets import open_dataset
    from difficulty_service.pipeline import extract_dataset

    with show_extraction(request) as bar:
        dataset = open_dataset(request.location, request.dataset)
        report_dataset(dataset)
        request = with_precision(with_backbone(request, choose()), dataset)
        err.print(f"features go to {request.out}", markup=False)
        extracted = extract_dataset(dataset, request, bar.update)
    report_extraction(request, extracted)
    print_warnings(extracted.store.warnings)


@contextmanager
def show_extraction(request: "ExtractRequest") -> Iterator[ImageProgressBar]:
    """Prints what is extracted, and gives a progress bar; a key press ends the process."""
    err.print(f"listing {request.location}", markup=False)
    goes_on = "stopped; the same command resumes where this one stopped"
    with exit_when_interrupted(goes_on), ImageProgressBar() as bar:
        yield bar


def with_backbone(request: "ExtractRequest", backbone: str) -> "ExtractRequest":
    """The request with this backbone, whose name and device are printed."""
    where = f"{request.network.device}{' of a Ray cluster' if request.cluster else ''}"
    err.print(f"the features are those of {backbone}, on {where}", markup=False)
    return replace(request, backbone=backbone)


def report_reuse(reuse: "Reuse", num_features: int, samples: str) -> None:
    """Prints how many features of earlier runs are kept."""
    new = f"{reuse.num_new:,} {samples}{' is' if reuse.num_new == 1 else 's are'} new"
    kept = num_features - reuse.num_new
    out.print(f"{kept:,} of {num_features:,} features are kept; {new}")
    if reuse.num_left_over:
        out.print(
            f"features of {reuse.num_left_over:,} {samples}s that are not in the dataset are kept, "
            "in case they come back"
        )


def report_extraction(request: "ExtractRequest", extracted: "ExtractedDataset") -> None:
    """Prints the number of images with features, and the list of the others."""
    from difficulty_service.files.wording import count_of

    samples = request.dataset.modality
    total, bad, skipped = (
        extracted.num_samples,
        len(extracted.bad_images),
        len(extracted.skipped),
    )
    out.print(
        f"{total - bad:,} of {total:,} {samples}s have features in {request.out}", markup=False
    )
    if extracted.reuse is not None:
        report_reuse(extracted.reuse, total - bad, samples)
    subset = request.subset
    if subset.num_subsets > 1:
        out.print(
            f"this is part {subset.index} of {subset.num_subsets}, counted from 0; join all parts "
            "with `difficulty merge`",
            markup=False,
        )
    counts = []
    if bad:
        first = extracted.bad_images[0]
        counts.append(
            f"{count_of(bad, samples)} could not be read, first {first.sample_id}: {first.reason}"
        )
    if skipped:
        entries = count_of(skipped, "entry", "entries")
        counts.append(f"{entries} of the dataset {'was' if skipped == 1 else 'were'} skipped")
    if counts:
        err.print(
            f"{'; '.join(counts)}; {extracted.errors_file} lists each with its reason",
            markup=False,
        )
