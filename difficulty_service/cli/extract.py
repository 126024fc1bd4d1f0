"""`difficulty extract`: a dataset in, a folder of features out."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.cli.console import alarm, as_text, err, out, print_table, print_warnings
from difficulty_service.cli.progress import exit_when_interrupted
from difficulty_service.cli.score_report import report_dataset
from difficulty_service.cli.wrong_call import WrongCall, as_option, option
from difficulty_service.settings.option_rules import chosen_in, find_clash
from difficulty_service.settings.run import Run

if TYPE_CHECKING:
    from difficulty_service.cli.progress import ImageProgressBar
    from difficulty_service.extraction.plan import Plan, ShardSubset
    from difficulty_service.extraction.policy import Runtime
    from difficulty_service.extraction.stage_clock import StageClock
    from difficulty_service.features.previous import Reuse
    from difficulty_service.scoring.pipeline import ExtractedDataset
    from difficulty_service.settings.options import Options


def extract(
    dataset: str,
    /,
    *,
    out: Path,
    shard: Annotated[str | None, Parameter(metavar="I/N")] = None,
    profile: bool = False,
    run: Run = Run(),
) -> None:
    """Turns every image or text of a dataset into a feature vector.

    The same command resumes a run that was stopped. Samples that cannot be read are counted and
    listed in `errors.csv` beside the features.

    Args:
        dataset: Folder, table, tar shards, hf:NAME, or a glob.
        out: Folder for the features.
        shard: Extract only part I of N, from 0, into its own folder for `difficulty merge`; under
            Slurm $SLURM_PROCID/$SLURM_NTASKS.
        profile: Show how long each stage was busy, and which is slowest.
    """
    plan = plan_of(replace(run, source=dataset, features=out))
    if shard is not None:
        plan = replace(plan, subset=parse_subset(shard))
    if not profile:
        run_extract(plan)
        return
    if plan.cluster is not None:
        raise WrongCall("--profile needs --engine local")
    if plan.devices:
        raise WrongCall("--profile needs one device")
    from difficulty_service.extraction.stage_clock import StageClock

    clock = StageClock()
    run_extract(replace(plan, clock=clock))
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
    from difficulty_service.extraction.plan import ShardSubset

    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise WrongCall(f"--shard {text} is not of the form I/N with I from 0 to N-1, such as 0/4")
    return ShardSubset(int(match[1]), int(match[2]))


def require_compatible(run: Run, *others: "Options") -> None:
    """Refuses options of a run and of others that cannot be chosen together, as Python does.

    Raises:
        WrongCall: A rule forbids it.
    """
    # A name may end in an underscore, because Python takes the word for itself.
    clash = find_clash(run.chosen | {name.strip("_") for name in chosen_in(*others)})
    if clash is not None:
        raise WrongCall(clash.sentence(option))


def plan_of(run: Run) -> "Plan":
    """What a run does on this machine, where its options fit together."""
    from difficulty_service.scoring.pipeline import make_plan

    require_compatible(run)
    return make_plan(run)


def run_extract(plan: "Plan") -> None:
    """Extracts with a progress bar and prints what came out."""
    from difficulty_service.datasets import open_dataset
    from difficulty_service.scoring.pipeline import Callbacks, execute

    def on_settled(settled: "Plan") -> None:
        report_settled(settled)
        err.print(f"features go to {plan.out}")

    with show_extraction(plan) as bar:
        dataset = open_dataset(plan.location, plan.dataset)
        report_dataset(dataset)
        callbacks = Callbacks(bar.update, on_settled, report_runtime)
        extracted = execute(plan.reporting(bar.download), callbacks, dataset)
    report_extraction(plan, extracted)
    print_warnings(extracted.store.warnings)


def report_settled(plan: "Plan") -> None:
    """Prints the backbone, its device and, where it was chosen here, its precision."""
    print_warnings(plan.warnings)
    where = f"{plan.network.device}{' of a Ray cluster' if plan.cluster else ''}"
    if plan.devices:
        where = f"{len(plan.devices)} GPUs of this machine"
    err.print(f"features of {plan.backbone}, on {where}")
    if plan.precision_reason is not None:
        err.print(f"the network computes in {plan.precision_reason}")


def report_runtime(runtime: "Runtime") -> None:
    """Prints the library that runs the network, where it was chosen here."""
    if runtime.reason is not None:
        err.print(f"the network runs by {runtime.reason}")


@contextmanager
def show_extraction(plan: "Plan") -> "Iterator[ImageProgressBar]":
    """Prints what is extracted, and gives a progress bar; a key press ends the process."""
    from difficulty_service.cli.progress import ImageProgressBar

    err.print(f"listing {plan.location}")
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


def report_extraction(plan: "Plan", extracted: "ExtractedDataset") -> None:
    """Prints the number of images with features, and the list of the others."""
    from difficulty_service.base.wording import count_of
    from difficulty_service.features.errors_file import as_csv, describe_reasons

    samples = extracted.store.description.noun
    total, bad, skipped = extracted.num_samples, len(extracted.bad_images), len(extracted.skipped)
    out.print(f"{total - bad:,} of {total:,} {samples}s have features in {plan.out}")
    if extracted.reuse is not None:
        report_reuse(extracted.reuse, total - bad, samples)
    subset = plan.subset
    if subset.num_subsets > 1:
        out.print(
            f"this is part {subset.index} of {subset.num_subsets}, counted from 0; join all parts "
            "with `difficulty merge`"
        )
    counts = [f"{count_of(bad, samples)} could not be read"] if bad else []
    if skipped:
        entries = count_of(skipped, "entry", "entries")
        counts.append(f"{entries} of the dataset {'was' if skipped == 1 else 'were'} skipped")
    if counts:
        alarm.print(
            f"{'; '.join(counts)}; {as_csv(extracted.errors_file)} lists each with its reason"
        )
    for phrase in describe_reasons(extracted.bad_images, samples, as_option):
        alarm.print(f"  {as_text(phrase)}")
