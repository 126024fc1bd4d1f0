"""`difficulty extract`: a dataset in, a folder of features out."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.cli.console import alarm, as_text, err, out, print_table, print_warnings
from difficulty_service.cli.progress import exit_when_interrupted, following_downloads
from difficulty_service.cli.score_report import report_dataset
from difficulty_service.cli.wrong_call import WrongCall, as_option, option
from difficulty_service.settings.option_rules import chosen_for_features, find_clash
from difficulty_service.settings.options import ExtractionOptions

if TYPE_CHECKING:
    from difficulty_service.cli.progress import ImageProgressBar
    from difficulty_service.extraction.runtime import SettledRuntime
    from difficulty_service.extraction.stage_clock import StageClock
    from difficulty_service.features.previous import Reuse
    from difficulty_service.scoring.pipeline import (
        ExtractedDataset,
        ExtractRequest,
        SettledExtraction,
        ShardSubset,
    )


def extract(
    dataset: str,
    /,
    *,
    out: Path,
    shard: Annotated[str | None, Parameter(metavar="I/N")] = None,
    profile: bool = False,
    extraction: ExtractionOptions = ExtractionOptions(),
) -> None:
    """Turns every image or text of a dataset into a feature vector.

    The same command resumes a run that was stopped. Samples that cannot be read are counted and
    listed in `errors.csv` beside the features.

    Args:
        dataset: Folder, table, tar shards, hf:NAME, or a glob.
        out: Folder for the features.
        shard: Extract only part I of N, counted from 0, into a folder of its own; `difficulty
            merge` joins them. Under Slurm: $SLURM_PROCID/$SLURM_NTASKS.
        profile: Show how long each stage was busy, and which is slowest.
    """
    request = build_request(dataset, out, extraction)
    if shard is not None:
        request = replace(request, subset=parse_subset(shard))
    if not profile:
        run_extract(request)
        return
    if request.cluster is not None:
        raise WrongCall("--profile needs --engine local")
    from difficulty_service.extraction.stage_clock import StageClock

    clock = StageClock()
    run_extract(replace(request, clock=clock))
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
    """Reads which part of how many."""
    from difficulty_service.scoring.pipeline import ShardSubset

    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise WrongCall(f"--shard {text} is not of the form I/N with I from 0 to N-1, such as 0/4")
    return ShardSubset(int(match[1]), int(match[2]))


def require_compatible(chosen: Iterable[str]) -> None:
    """Refuses options that cannot be chosen together, as the other front ends do.

    Raises:
        WrongCall: A rule forbids it.
    """
    clash = find_clash({name.strip("_") for name in chosen})
    if clash is not None:
        raise WrongCall(clash.sentence(option))


def build_request(dataset: str, out: Path, extraction: ExtractionOptions) -> "ExtractRequest":
    """The request for the pipeline that the options of the command line describe."""
    from difficulty_service.scoring.pipeline import plan_extraction

    require_compatible(chosen_for_features(extraction))
    return plan_extraction(dataset, out, extraction)


def run_extract(request: "ExtractRequest") -> None:
    """Extracts with a progress bar and prints what came out."""
    from difficulty_service.datasets import open_dataset
    from difficulty_service.scoring.pipeline import Callbacks, extract_dataset

    def on_settled(settled: "SettledExtraction") -> None:
        report_settled(settled)
        err.print(f"features go to {request.out}", markup=False)

    with show_extraction(request) as bar:
        dataset = open_dataset(request.location, request.dataset)
        report_dataset(dataset)
        callbacks = Callbacks(bar.update, on_settled, report_runtime)
        extracted = extract_dataset(dataset, following_downloads(request, bar), callbacks)
    report_extraction(request, extracted)
    print_warnings(extracted.store.warnings)


def report_settled(settled: "SettledExtraction") -> None:
    """Prints the backbone, its device and, where it was chosen here, its precision."""
    print_warnings(settled.warnings)
    request = settled.request
    where = f"{request.network.device}{' of a Ray cluster' if request.cluster else ''}"
    err.print(f"the features are those of {settled.backbone}, on {where}", markup=False)
    if settled.precision_reason is not None:
        err.print(f"the network computes in {settled.precision_reason}", markup=False)


def report_runtime(runtime: "SettledRuntime") -> None:
    """Prints the library that runs the network, where it was chosen here."""
    if runtime.reason is not None:
        err.print(f"the network runs by {runtime.reason}", markup=False)


@contextmanager
def show_extraction(request: "ExtractRequest") -> "Iterator[ImageProgressBar]":
    """Prints what is extracted, and gives a progress bar; a key press ends the process."""
    from difficulty_service.cli.progress import ImageProgressBar

    err.print(f"listing {request.location}", markup=False)
    goes_on = "stopped; the same command resumes where this one stopped"
    with exit_when_interrupted(goes_on), ImageProgressBar() as bar:
        yield bar


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
    from difficulty_service.features.errors_file import as_csv, describe_reasons

    samples = extracted.store.description.noun
    total, bad, skipped = extracted.num_samples, len(extracted.bad_images), len(extracted.skipped)
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
    counts = [f"{count_of(bad, samples)} could not be read"] if bad else []
    if skipped:
        entries = count_of(skipped, "entry", "entries")
        counts.append(f"{entries} of the dataset {'was' if skipped == 1 else 'were'} skipped")
    if counts:
        alarm.print(
            f"{'; '.join(counts)}; {as_csv(extracted.errors_file)} lists each with its reason",
            markup=False,
        )
    for phrase in describe_reasons(extracted.bad_images, samples, as_option):
        alarm.print(f"  {as_text(phrase)}", markup=False)
