"""`difficulty extract`: a dataset in, a folder of features out."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.cli.console import err, out, print_table, print_warnings
from difficulty_service.cli.extraction import (
    Extraction,
    choose_machine,
    read_corruption,
    refuse_other_modality,
    with_precision,
)
from difficulty_service.cli.interruption import exit_when_interrupted
from difficulty_service.cli.score_report import report_dataset
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.options import parse_actors

if TYPE_CHECKING:
    from difficulty_service.cli.progress import ImageProgressBar
    from difficulty_service.extraction.shard_subset import ShardSubset
    from difficulty_service.extraction.stage_clock import StageClock
    from difficulty_service.features.previous import Reuse
    from difficulty_service.pipeline import ExtractedDataset, ExtractRequest
    from difficulty_service.scores.fitted_gaussians import FittedGaussians


def extract(
    dataset: str,
    /,
    *,
    out: Path,
    shard: Annotated[str | None, Parameter(metavar="I/N")] = None,
    profile: bool = False,
    extraction: Extraction = Extraction(),
) -> None:
    """Turns every image or text of a dataset into a feature vector.

    The same command resumes a run that was stopped. Samples that cannot be read are counted and
    listed in `errors.parquet` beside the features.

    Args:
        dataset: Folder, table, tar shards, hf:NAME, or a glob.
        out: Folder for the features.
        shard: Extract only part I of N, counted from 0, into a folder of its own; `difficulty
            merge` joins them. Under Slurm: $SLURM_PROCID/$SLURM_NTASKS.
        profile: Show how long each stage was busy, and which is slowest.
    """
    request = build_request(dataset, out, extraction)
    choose = partial(choose_backbone, extraction)
    if shard is not None:
        request = replace(request, subset=parse_subset(shard))
    if not profile:
        run_extract(request, choose)
        return
    if request.cluster is not None:
        raise WrongCall("--profile needs --engine local")
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
        WrongCall: The text is not of the form I/N with I from 0 to N-1.
    """
    from difficulty_service.extraction.shard_subset import ShardSubset

    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise WrongCall(f"--shard {text} is not of the form I/N with I from 0 to N-1, such as 0/4")
    return ShardSubset(int(match[1]), int(match[2]))


def build_request(dataset: str, out: Path, extraction: Extraction) -> "ExtractRequest":
    """The request for the pipeline that the options of the command line describe.

    Its backbone is the default one where none is named; `choose_backbone` has the last word.
    """
    from difficulty_service.backbones import DEFAULT_BACKBONE
    from difficulty_service.backbones.backbone import BackboneOptions
    from difficulty_service.datasets.sample import DatasetOptions
    from difficulty_service.extraction.engines.cluster import ClusterOptions
    from difficulty_service.extraction.task import ExtractOptions
    from difficulty_service.pipeline import ExtractRequest

    encoding, network, machine = extraction.encoding, extraction.network, extraction.machine
    cluster = None
    if machine.engine == "ray":
        actors = (1, None) if machine.ray_actors is None else parse_actors(machine.ray_actors)
        cluster = ClusterOptions(machine.ray_address, *actors)
    elif machine.ray_address or machine.ray_actors:
        raise WrongCall("--ray-address and --ray-actors need --engine ray")
    refuse_other_modality(extraction)
    device, precision = choose_machine(extraction, cluster)
    reading = extraction.dataset.model_dump(exclude={"modality"})
    return ExtractRequest(
        location=dataset,
        out=out,
        backbone=network.backbone or DEFAULT_BACKBONE,
        dataset=DatasetOptions(**reading | {"text_column": extraction.text_column}),
        network=BackboneOptions(
            weights=machine.weights,
            features=network.features,
            device=device,
            precision=precision,
            flip=encoding.flip,
        ),
        options=ExtractOptions(
            batch_size=machine.batch_size,
            augment_runs=encoding.augment_runs,
            seed=encoding.seed,
            corruption=read_corruption(encoding),
            mode=network.preprocess,
            max_pixels=machine.max_pixels,
            stop_on_error=encoding.on_error == "stop",
            workers=machine.workers,
            open_precision=machine.precision == "auto",
        ),
        resume=machine.resume,
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

    fitted_to = None if fitted is None else fitted.description.backbone
    named = extraction.network.backbone or fitted_to
    if named:
        return str(named)
    if extraction.dataset.modality == "text":
        return BUILTIN_TEXT
    if extraction.machine.weights is not None or extraction.network.features != "penultimate":
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
def show_extraction(request: "ExtractRequest") -> "Iterator[ImageProgressBar]":
    """Prints what is extracted, and gives a progress bar; a key press ends the process."""
    from difficulty_service.cli.progress import ImageProgressBar

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
    from difficulty_service.base.wording import count_of

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
