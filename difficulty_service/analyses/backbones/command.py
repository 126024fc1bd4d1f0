"""`difficulty backbones --try`: which backbone suits a dataset."""

from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from difficulty_service.cli.wrong_call import WrongCall, options
from difficulty_service.settings.command_options import TrialOptions
from difficulty_service.settings.run import Run

if TYPE_CHECKING:
    from difficulty_service.analyses.backbones.backbone_trial import BackboneTrial


def run_trial(run: Run, trial: TrialOptions, given: set[str], *, as_json: bool) -> None:
    """Tries the backbones with a progress bar; prints a table and a recommendation, or JSON.

    Args:
        given: Names of options that a trial does not heed, and that were given all the same.
    """
    from difficulty_service.analyses.backbones.backbone_trial import (
        TrialCallbacks,
        try_backbones,
        useless_options,
    )
    from difficulty_service.cli.console import err, out, print_json, print_warnings
    from difficulty_service.cli.extract import plan_of
    from difficulty_service.cli.progress import ImageProgressBar, exit_when_interrupted
    from difficulty_service.datasets import open_dataset

    if useless := given | useless_options(run):
        raise WrongCall(f"{options(useless)} would change nothing with --try")
    plan = plan_of(run)
    names, numbers = trial.try_, count(1)
    with exit_when_interrupted("stopped; nothing is kept of a trial"), ExitStack() as bars:
        bar = ImageProgressBar()

        def on_begun(name: str) -> None:
            nonlocal bar
            bars.close()
            err.print(f"trying {name} ({next(numbers)} of {len(names)})")
            bar = bars.enter_context(ImageProgressBar())

        err.print(f"listing {plan.location}")
        dataset = open_dataset(plan.location, plan.dataset)
        callbacks = TrialCallbacks(on_begun, lambda progress: bar.update(progress))
        plan = plan.reporting(lambda progress: bar.download(progress))
        found = try_backbones(dataset, plan, trial, callbacks)
    print_warnings(found.warnings)
    if as_json:
        print_json(found)
        return
    print_trial(found)
    out.print(found.sentence)


def print_trial(found: "BackboneTrial") -> None:
    """Prints a row for each backbone, the best first, and what they were tried on."""
    from difficulty_service.base.wording import count_of
    from difficulty_service.cli.console import out, print_table

    rows = [
        (
            each.name,
            f"{each.nats:.3f}",
            f"{each.below_best:.3f} ± {each.below_best_95:.3f}" if rank else "best",
            each.images_per_second,
            as_duration(each.hours),
        )
        for rank, each in enumerate(found.tried)
    ]
    samples = f"{found.noun}s/s"
    takes = f"time for {found.samples_of_dataset:,}"
    print_table(("name", "nats per label", "below the best", samples, takes), rows)
    out.print(
        f"{count_of(found.samples, found.noun)} of {found.samples_of_dataset:,} in "
        f"{found.classes:,} classes, whose sizes alone give {found.nats_without_features:.3f} "
        "nats; intervals of 95 %, paired over the samples"
    )
    for other in found.not_tried:
        out.print(f"not tried: {other.name}: {other.reason}")


LONGEST_IN_UNIT = 90
"""Seconds or minutes from which on the next unit says it better."""


def as_duration(hours: float) -> str:
    """A time as people say it: 40 s, 12 min or 3.5 h."""
    if hours * 3600 < LONGEST_IN_UNIT:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours * 60 < LONGEST_IN_UNIT else f"{hours:,.1f} h"
