"""`difficulty estimate`: features in, an estimate of the number of wrong labels out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt
from cyclopts.validators import Number

from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_table, print_warnings
from difficulty_service.settings.options import FittingOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from difficulty_service.reports.wrong_labels import CutEstimate
    from difficulty_service.scores.label_counts import Proportion


def estimate(
    store: Path,
    /,
    *,
    marks: Path | None = None,
    share: Annotated[float, Parameter(validator=Number(gte=0.0001, lte=0.2))] = 0.02,
    repeats: PositiveInt = 3,
    seed: int = 0,
    fitting: FittingOptions = FittingOptions(),
) -> None:
    """Estimates the number of wrong labels, and how many a threshold on label_margin finds.

    Flips some labels, fits the Gaussians again and counts the flipped samples above each threshold.
    Only marks can tell how many samples above it are really wrong.

    Args:
        store: Features of `difficulty extract`, or in .npz, .npy or Parquet.
        marks: Marks of randomly chosen samples: keep and misplaced count as right labels, relabel
            and drop as wrong ones.
        share: Share of the labels to flip at a time.
        repeats: Number of times to flip labels and fit.
        seed: Random seed of the flips.
    """
    from difficulty_service.features.array_files import open_features
    from difficulty_service.reports.label_flips import flip_and_score
    from difficulty_service.reports.wrong_labels import estimate_cuts

    features = open_features(store)
    flipped = flip_and_score(features, fitting.fit, share=share, repeats=repeats, seed=seed)
    ids, boxes = list(flipped.sample_ids), features.description.boxes
    reviewed = {} if marks is None else read_reviewed(marks, ids, boxes=boxes)
    report_estimates(estimate_cuts(flipped, reviewed), has_marks=bool(reviewed), seed=seed)


def read_reviewed(path: Path, sample_ids: list[str], *, boxes: bool) -> dict[str, bool]:
    """Whether the label of each marked sample is wrong, where they may be boxes of objects."""
    from difficulty_service.marks.files import read_marks
    from difficulty_service.marks.record import refuse_marks_of_boxes

    read = read_marks(path, set(sample_ids))
    refuse_marks_of_boxes(read.samples, boxes=boxes)
    print_warnings(read.warnings)
    unknown = set(read.samples) - set(sample_ids)
    if unknown:
        print_warnings([f"{len(unknown):,} marked samples have no features or no margin"])
    return {
        sample_id: marked.mark.kind.is_wrong
        for sample_id, marked in read.samples.items()
        if sample_id not in unknown
    }


def report_estimates(estimates: "Sequence[CutEstimate]", *, has_marks: bool, seed: int) -> None:
    """Prints a line for each cut, and in words what it means."""
    columns = ["margin above", "samples", "random flips found", "similar flips found"]
    rows = [
        [f"{each.cut:g}", f"{each.num_above:,}", _show(each.at_random), _show(each.confused)]
        for each in estimates
    ]
    if has_marks:
        columns.append("wrong of those marked")
        rows = [[*row, _show(each.reviewed)] for row, each in zip(rows, estimates, strict=True)]
    print_table(columns, rows)
    at_zero = estimates[0]
    console.print(
        f"\nof labels flipped at random, {at_zero.at_random.share:.0%} have a margin above 0; of "
        f"labels flipped to a similar class, {at_zero.confused.share:.0%}"
    )
    console.print(_say_number(at_zero, seed))


def _say_number(at_zero: "CutEstimate", seed: int) -> str:
    from difficulty_service.reports.wrong_labels import number_of_wrong_labels

    if not at_zero.reviewed.cases:
        return (
            f"only a person can tell how many of the {at_zero.num_above:,} labels above 0 are "
            "wrong: check some of them at random, and give --marks"
        )
    low, _ = number_of_wrong_labels(at_zero, seed)
    return (
        f"at least {low:,.0f} labels are wrong, if the marked ones were chosen at random among "
        "those above 0; more are, because errors of people are harder to find than flipped labels"
    )


def _show(proportion: "Proportion") -> str:
    if not proportion.cases:
        return "none"
    low, high = proportion.interval()
    return f"{proportion.share:.1%} ({low:.0%}-{high:.0%})"
